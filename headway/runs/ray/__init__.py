"""Campaigns on a Ray cluster: `headway run ... --launcher ray`."""

from headway.runs.ray.cluster import Resources
from headway.runs.ray.launcher import RayLauncher, make_ray

__all__ = ["RayLauncher", "Resources", "make_ray"]
