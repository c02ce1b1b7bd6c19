"""What can go wrong, with the command's messages."""


class Error(Exception):
    """Any error of meshplan. The message names the place, the value and the rule."""

    __module__ = "meshplan"


class ConfigError(Error, ValueError):
    """The input is wrong, as with the command's exit code 2: the message names what is valid."""

    __module__ = "meshplan"


class InfeasibleError(Error):
    """Nothing that was asked for is possible."""

    __module__ = "meshplan"


class IoError(Error, OSError):
    """A file cannot be read."""

    __module__ = "meshplan"


class InvariantError(Error, RuntimeError):
    """A bug of meshplan itself; never reachable from input."""

    __module__ = "meshplan"
