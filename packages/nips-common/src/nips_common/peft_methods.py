"""Adds a method from outside to peft, so that it saves, loads and composes like a built-in one."""

from importlib.metadata import distributions
from typing import Any

from nips_common.runtime import require


def register(name: str, config_cls: type, model_cls: type) -> Any:
    """Register a method with peft under lower-case ``name`` and return its ``PeftType`` member (upper case).

    Call it where the package is imported; a second import of the same classes is fine. ``model_cls.prefix`` must be
    ``name + "_"`` (ValueError). If peft or another package has the name already, an ImportError names both versions.
    """
    require("peft", "nips-common[peft]")
    from peft import mapping
    from peft.utils import PeftType, register_peft_method

    prefix = getattr(model_cls, "prefix", None)
    if not name.isidentifier() or name != name.lower().rstrip("_") or prefix != f"{name}_":
        raise ValueError(f"a peft method is named in lower case with prefix NAME_, got {name!r} with prefix {prefix!r}")
    member = _member(PeftType, name.upper())
    present = mapping.PEFT_TYPE_TO_CONFIG_MAPPING.setdefault(member, config_cls)
    if (present.__module__, present.__qualname__) != (config_cls.__module__, config_cls.__qualname__):
        of = lambda cls: [f"{d.name} {d.version}" for d in distributions(name=cls.__module__.partition(".")[0])]
        raise ImportError(f"peft method {name!r} is {present} of {of(present)}, not {config_cls} of {of(config_cls)}")
    for table in ("CONFIG", "TUNER", "PREFIX"):  # a module imported once more brings new classes, which take over
        vars(mapping)[f"PEFT_TYPE_TO_{table}_MAPPING"].pop(member, None)
    register_peft_method(name=name, config_cls=config_cls, model_cls=model_cls)
    return member


def _member(enum: Any, name: str) -> Any:
    """Return ``enum[name]``, adding it where it is missing: peft offers no way to extend its closed ``PeftType``."""
    if name not in enum.__members__:
        member = str.__new__(enum, name)
        member._name_ = member._value_ = name
        member.__objclass__, member._sort_order_ = enum, len(enum._member_names_)
        enum._member_names_.append(name)
        enum._member_map_[name] = enum._value2member_map_[name] = member
        if hasattr(enum, "_hashable_values_"):  # Python 3.12 and later look values up here too
            enum._hashable_values_.append(name)
        type.__setattr__(enum, name, member)  # the metaclass refuses new members
    return enum[name]
