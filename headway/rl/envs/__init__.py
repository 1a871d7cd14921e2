"""Grid worlds as vector environments: DoorKey over arrays, Farama's MiniGrid, and noise near doors.

`make_env` is the way in; `headway.rl` has the public names.
"""
