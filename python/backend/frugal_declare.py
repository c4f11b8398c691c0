"""Writes the ctypes declarations of Frugal's calls, structs and enumerators from its headers.

The layouts of the bindings then follow the headers by themselves. What it reads is the style of these headers, not C:
`typedef struct name { ... } name;`, `typedef enum { ... } name;`, `FRUGAL_API type name(arguments);` and the list
FRUGAL_STATUS_LIST. A field whose name is a word of Python's own gets a `_` behind it: `as_`. What it does not
understand is an error of the build, and frugal/_library.py compares the size of every struct with the library's when it
is imported.

    python3 frugal_declare.py FOLDER_OF_THE_HEADERS >_declarations.py
"""
from __future__ import annotations

import keyword
import pathlib
import re
import sys

HEADERS = ("frugal_pq.h", "frugal_p2f.h", "frugal.h", "frugal_bindings.h", "frugal_counts.h", "frugal_secondaries.h",
           "frugal_machines.h", "frugal_seeing.h", "frugal_save.h", "frugal_serve.h", "frugal_cuda.h",
           "frugal_cuda_serve.h")
STRUCTS_OF = HEADERS[2:]  # those of the first two are for trainers that have a store of their own

SCALARS = {
    "int": "c_int", "float": "c_float", "double": "c_double", "size_t": "c_size_t", "void": "None",
    "uint8_t": "c_uint8", "uint32_t": "c_uint32", "int32_t": "c_int32", "uint64_t": "c_uint64", "int64_t": "c_int64",
    "frugal_notice": "c_void_p",  # a function
    "frugal_place_policy": "c_int",  # of frugal_place.h, which the library does not have
}


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", " ", text, flags=re.S))


def ctype(base: str, stars: int, known: set[str], enums: set[str]) -> str:
    """The ctypes name of a C type: `base` with `stars` asterisks. Arrays and structs are passed as addresses."""
    if base == "char" and stars:
        return "c_char_p" if stars == 1 else "POINTER(c_char_p)"
    if stars:
        return "c_void_p"
    if base in enums:
        return "c_int"
    if base in SCALARS:
        return SCALARS[base]
    if base in known:
        return base
    raise ValueError(f"frugal_declare: the type '{base}' is not known; add it to SCALARS")


def split_declaration(text: str) -> tuple[str, list[tuple[str, int, str]]]:
    """'const float *a, b[64]' -> ('float', [('a', 1, ''), ('b', 0, '64')])"""
    text = re.sub(r"\b(const|struct|extern)\b", " ", text).strip()
    match = re.match(r"(\w+)\b(.*)$", text, flags=re.S)
    if not match:
        raise ValueError(f"frugal_declare: '{text}' is not a declaration")
    base, rest = match.groups()
    parts = []
    for part in rest.split(","):
        found = re.fullmatch(r"\s*((?:\*\s*)*)(\w*)\s*(?:\[(\w*)\])?\s*", part)
        if not found:
            raise ValueError(f"frugal_declare: '{part}' of '{text}' is not a declarator")
        parts.append((found[2], found[1].count("*"), found[3] or ""))
    return base, parts


def fields_of(body: str, known: set[str], enums: set[str]) -> list[tuple[str, str]]:
    fields = []
    for line in body.split(";"):
        line = " ".join(line.split())
        if not line:
            continue
        function = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", line)
        if function:
            fields.append((function[1], "c_void_p"))
            continue
        base, parts = split_declaration(line)
        for name, stars, length in parts:
            kind = ctype(base, stars, known, enums)
            fields.append((name + "_" * keyword.iskeyword(name), f"{kind} * {length}" if length else kind))
    return fields


def enumerators_of(body: str) -> list[tuple[str, int]]:
    values, following = [], 0
    for part in body.split(","):
        part = part.strip()
        if part:
            name, _, value = (word.strip() for word in part.partition("="))
            following = int(value, 0) if value else following
            values.append((name, following))
            following += 1
    return values


def declare(folder: pathlib.Path) -> str:
    """The text of _declarations.py for the headers in `folder`."""
    out = ['"""ctypes declarations of the headers, written by backend/frugal_declare.py: do not edit."""',
           "from ctypes import (POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,",
           "                    c_uint8, c_uint32, c_uint64, c_void_p)  # noqa: F401", ""]
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in HEADERS}
    for name, value in re.findall(r"^#define (FRUGAL_VERSION|FRUGAL_MAX_\w+) +(\d+)", "\n".join(texts.values()), re.M):
        out.append(f"{name} = {value}")
    statuses = re.findall(r"^ *X\((\w+), (-?\d+),", texts["frugal_p2f.h"], re.M)
    if len(statuses) < 10:
        raise ValueError("frugal_declare: FRUGAL_STATUS_LIST was not found in frugal_p2f.h")
    out.append("STATUSES = {" + ", ".join(f'{value}: "{name}"' for name, value in statuses) + "}")

    enums, known, functions = {"frugal_status"}, set(), []
    for header in HEADERS[1:]:
        text = without_comments(texts[header])
        for body, name in re.findall(r"typedef enum(?: \w+)? \{([^{}]*)\} (\w+);", text):
            if "#" in body:
                continue  # frugal_status, from its list
            enums.add(name)
            values = enumerators_of(body)
            out += [f"{key} = {value}" for key, value in values] + [f"{name} = {dict(values)}"]
        if header not in STRUCTS_OF:
            continue
        for name, body, _ in re.findall(r"typedef struct (\w+) \{(.*?)\} (\w+);", text, re.S):
            fields = fields_of(body, known, enums)
            known.add(name)
            out += ["", "", f"class {name}(Structure):", "    _fields_ = ["]
            out += [f'        ("{field}", {kind}),' for field, kind in fields] + ["    ]"]
        for start, name, arguments in re.findall(r"FRUGAL_API ([\w\s*]*?)\b(frugal_\w+)\(([^;{}]*?)\);", text, re.S):
            base, parts = split_declaration(start)
            result = ctype(base, parts[0][1], known, enums)
            kinds = []
            for argument in arguments.split(","):
                base, parts = split_declaration(argument)
                if base != "void" or parts[0][1]:
                    kinds.append(ctype(base, parts[0][1], known, enums))
            functions.append((name, result, kinds))
    out += ["", "", "STRUCTS = (" + ", ".join(sorted(known)) + ")", "FUNCTIONS = {"]
    out += [f'    "{name}": ({result}, [{", ".join(kinds)}]),' for name, result, kinds in functions] + ["}", ""]
    return "\n".join(out)


if __name__ == "__main__":
    sys.stdout.write(declare(pathlib.Path(sys.argv[1])))
