"""Loading by path says what is missing."""

import collections

import pytest

from reef.config.loading import load
from reef.errors import ConfigError


def test_loads_names_and_names_inside_classes():
    assert load("collections:OrderedDict") is collections.OrderedDict
    assert load("collections:Counter.most_common") is collections.Counter.most_common


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("collections.OrderedDict", "environment 'collections.OrderedDict': expected the form 'package.module:Name'"),
        ("no_such_package.envs:Env", "there is no module 'no_such_package'"),
        ("collections.no_such:Env", "there is no module 'collections.no_such'"),
        ("collections:OrderedDic", "collections has no 'OrderedDic'. Did you mean 'OrderedDict'"),
        ("json.decoder:scaner", "json.decoder has no 'scaner'. Did you mean 'scanstring'"),  # scanner is a module
        ("tests:make.<locals>.Env", "made inside a function"),
    ],
)
def test_says_what_is_missing(path, message):
    with pytest.raises(ConfigError, match=message):
        load(path, what="environment")


def test_a_module_that_imports_something_missing_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "my_broken_env.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="'my_broken_env' imports 'no_such_package', which is not installed"):
        load("my_broken_env:Env")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\ndef f(:\n", "broken_here.py, line 2: SyntaxError: invalid syntax"),
        ("\n\nprint(nowhere)\n", "broken_here.py, line 3: NameError: name 'nowhere' is not defined"),
        ("from os import nothing\n", "broken_here.py, line 1: ImportError: cannot import name 'nothing' from 'os'"),
        ("def f():\n    raise OSError('no disk')\n\n\nf()\n", "broken_here.py, line 5: OSError: no disk"),
        ("import broken_below\n", "broken_below.py, line 2: ZeroDivisionError"),
    ],
)
def test_a_module_that_fails_is_named_with_file_line_and_error(text, expected, tmp_path, monkeypatch):
    (tmp_path / "broken_here.py").write_text(text)
    (tmp_path / "broken_below.py").write_text("\n1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError) as error:
        load("broken_here:Env", what="environment")
    assert str(error.value).startswith("environment 'broken_here:Env': ")
    assert expected in str(error.value)
