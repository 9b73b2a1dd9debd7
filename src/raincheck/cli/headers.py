"""HTTP headers as they are written in a shell."""


def read_headers(lines: list[str]) -> dict[str, str]:
    """Headers of the form `Name: value`, by their names.

    Raises:
        ValueError: one is not of that form.
    """
    pairs = [line.partition(":") for line in lines]
    if not all(name.strip() and colon for name, colon, _ in pairs):
        # Not repeated: it may well be a secret.
        raise ValueError("a header is said as 'Name: value', and one has no name or no colon")
    return {name.strip(): value.strip() for name, _, value in pairs}
