"""The HTTP server of `raincheck serve --http`."""
