"""Dispatchers, which deliver attempts to workers on other machines. `stores.dispatcher` defines the interface."""
