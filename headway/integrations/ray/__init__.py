"""Campaigns on a Ray cluster: `headway run ... --launcher ray`."""

from headway.integrations.ray.cluster import Resources
from headway.integrations.ray.launcher import RayLauncher, make_ray

__all__ = ["RayLauncher", "Resources", "make_ray"]
