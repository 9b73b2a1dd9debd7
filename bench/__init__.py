"""What raincheck promises about speed, measured: every figure is a ratio of two things measured side by side.

A time by itself says more about the machine than about the program. So each figure is compared with something that
ran in the same minutes on the same disk, in turns, and has a bound that the ratio must keep.
"""
