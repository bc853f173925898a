"""griffe reads one name before a colon, and our docstrings have several: ``old_size, new_size: of the file``."""

import re

import griffe

_ENTRY = re.compile(r"^( +)([a-z_]\w*(?:, [a-z_]\w*)+)(: .*\n?(?:\1 .*\n?)*)", re.MULTILINE)


class SeveralNames(griffe.Extension):
    """Gives each name the text, and so a type of its own."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _ENTRY.sub(_one_each, obj.docstring.value)


def _one_each(found: re.Match[str]) -> str:
    indent, names, text = found.groups()
    return "".join(f"{indent}{name}{text.rstrip()}\n" for name in names.split(", "))
