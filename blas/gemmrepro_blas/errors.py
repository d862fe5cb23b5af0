"""What is refused, in one sentence that ends in a remedy."""


class UserError(Exception):
    """What the caller can put right."""
