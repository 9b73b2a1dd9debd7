"""Where tasks are kept: the seam (`interface`), and the stores behind it."""
