"""The layout check fails on modules and folders that are too large, and reports large ones."""

from scripts.layout import ROOT, Layout, duplicate_classes, errors_of, notes_on


def layout(**lines: int) -> Layout:
    """A layout with modules of these sizes. Only `other.py` imports `small.py`."""
    return Layout({f"src/kit/{name}.py": size for name, size in lines.items()}, {"src/kit/small.py": {"other.py"}})


def test_a_module_of_500_lines_fails() -> None:
    assert list(errors_of(layout(one=499))) == []
    assert list(errors_of(layout(one=500))) == ["src/kit/one.py has 500 lines: split it by topic (500 is the limit)"]


def test_a_folder_of_20_modules_fails_not_counting_its_init() -> None:
    names = [f"module_{number}" for number in range(19)]
    assert list(errors_of(layout(__init__=10, **dict.fromkeys(names, 100)))) == []
    assert list(errors_of(layout(one_more=100, **dict.fromkeys(names, 100)))) == [
        "src/kit has 20 modules: move some into a new folder (20 is the limit)"
    ]


def test_large_modules_and_folders_are_reported() -> None:
    assert list(notes_on(layout(one=400))) == []
    assert list(notes_on(layout(one=401))) == ["src/kit/one.py has 401 lines"]
    names = [f"module_{number}" for number in range(16)]
    assert list(notes_on(layout(**dict.fromkeys(names, 100)))) == ["src/kit has 16 modules"]


def test_a_small_module_with_a_single_importer_is_reported() -> None:
    assert list(notes_on(layout(small=60))) == []
    assert list(notes_on(layout(small=59, shared=59))) == [
        "src/kit/small.py has 59 lines, and only other.py imports it: it may belong inside"
    ]


def test_two_public_classes_of_one_name_fail_unless_one_is_generated_or_mirrors_for_fastmcp() -> None:
    def duplicates(*modules: str) -> list[str]:
        return list(duplicate_classes(Layout({}, {}, {"State": modules})))

    assert duplicates("core/records.py", "wire/v2025_types.py", "src/raincheck/fastmcp/tasks.py") == []
    assert duplicates("core/records.py", "workflows/machine.py") == [
        "State is the name of classes in core/records.py and workflows/machine.py: rename one"
    ]


def test_imports_are_found_in_the_modules_themselves() -> None:
    found = Layout.read(ROOT / "src")
    assert "src/raincheck/engine/worker/supervisor.py" in found.importers["src/raincheck/engine/execution/attempt.py"]
    assert found.lines["src/raincheck/core/decide.py"] > 30
