"""Measure the performance that raincheck promises. Most figures are a ratio of two things measured side by side.

An absolute time depends more on the machine than on the program. So each figure is compared with something that ran in
the same minutes on the same disk, in alternation, and has a bound for the ratio.
"""
