"""Declaring, reading, changing and freezing settings.

It tests reef.config.declaration too.
"""

import pickle
from typing import ClassVar

import pytest

from reef.config import AlgorithmConfig, ModelConfig, default, setting
from reef.config.refusals import Refusal
from reef.config.settings import Settings
from reef.errors import ConfigError


class Inner(Settings):
    label: ClassVar[str] = "inner"
    prefix: ClassVar[str] = "inner."

    size: int = setting(1, "Size.", minimum=1)
    words: list[str] = setting(["a"], "Words.")


class Outer(Settings):
    label: ClassVar[str] = "outer"
    group: ClassVar[str] = "things"
    refusals: ClassVar = {
        "later": Refusal("things", False),
        "never": Refusal("things", 3, "use speed"),
        "table": Refusal("things", {"a": 1}),
    }

    speed: float = setting(1.0, "Speed.", above=0.0, maximum=9.0, unit="m/s")
    mode: str = setting("slow", "Mode.", choices=("slow", "fast"))
    inner: Inner = setting({"size": 2}, "Inner.")
    other: dict[str, object] = setting({}, "Other.")


class Faster(Outer):
    speed = default(5.0)
    mode: object = default("fast")
    inner: Inner = default({"size": 4})


def test_defaults_are_objects_of_their_own():
    first, second = Outer(), Outer()
    first.inner.words.append("b")
    first.other["x"] = 1
    assert (second.inner.words, second.other) == (["a"], {})
    assert second.inner.size == 2


def test_a_new_default_keeps_type_limits_and_group():
    assert (Faster().speed, Faster().mode, Faster().inner.size) == (5.0, "fast", 4)
    assert Outer().speed == 1.0
    assert list(Faster(speed=-1, mode="quick").wrong_values()) == [
        "speed=-1.0: must be larger than 0 m/s.",
        "mode='quick': expected one of 'slow', 'fast'.",
    ]
    assert Faster.declared["speed"].group == "things"


def test_a_new_default_for_nothing_is_a_mistake_of_the_programmer():
    with pytest.raises(TypeError, match="no inherited setting 'sped'"):
        type("Wrong", (Outer,), {"sped": default(1.0)})


def test_all_problems_come_together():
    config = Outer(speed="10", mode="fats", later=True, never=4, inner={"size": 0})
    assert list(config.wrong_values()) == [
        "speed=10.0: must be at most 9 m/s.",
        "mode='fats': expected one of 'slow', 'fast'. Did you mean 'fast'?",
        "inner.size=0: must be at least 1.",
        "later=True: not available yet. Leave it at False.",
        "never=4: use speed. Leave it at 3.",
    ]


def test_a_refused_key_is_no_setting_and_has_no_effect_at_its_default():
    config = Outer(never=3.0, later=False)
    assert list(config.wrong_values()) == []
    assert config == Outer()
    assert {"never", "later"}.isdisjoint(config.to_dict())
    assert (config.never, config.later) == (3.0, False)


def test_a_refused_value_is_kept_until_it_is_refused():
    config = Outer(never=4)
    assert config != Outer()
    assert config.copy().to_dict()["never"] == 4
    assert pickle.loads(pickle.dumps(config)).never == 4
    config.never = 3
    assert config == Outer()


def test_paths_reach_inside_refused_keys():
    assert list(Outer().set_path("table.a", 2).wrong_values()) == [
        "table={'a': 2}: not available yet. Leave it at {'a': 1}."
    ]
    assert list(Outer().set_path("table.a", 1).wrong_values()) == []
    assert Outer.refusals["table"].default == {"a": 1}
    with pytest.raises(ConfigError, match="later.x=1: later has nothing inside"):
        Outer().set_path("later.x", 1)


def test_a_setting_of_ones_own_takes_the_place_of_a_refused_key():
    own = type("Own", (Outer,), {"never": setting(1, "Now."), "__annotations__": {"never": int}})
    assert list(own(never=4).wrong_values()) == []
    assert own(never=4).to_dict()["never"] == 4


def test_a_mapping_changes_only_what_it_names():
    config = Outer(inner={"words": ["x"]})
    config.inner = {"size": 9}
    assert (config.inner.size, config.inner.words) == (9, ["x"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda config: setattr(config, "sped", 1),
            r"sped: outer has no such setting. Did you mean 'speed'\? It belongs to 'things'",
        ),
        (lambda config: Outer(sped=1, mod=2), r"sped: .*\nmod: outer has no such setting. Did you mean 'mode'"),
        (lambda config: Outer(sped=1, speed=-1), r"sped: .*\nspeed=-1.0: must be larger than 0 m/s"),
        (
            lambda config: setattr(config, "inner", {"siz": 1}),
            "inner.siz: inner has no such setting. Did you mean 'size'",
        ),
        (lambda config: config.set_path("inner.siz", 1), "inner.siz: inner has no such setting. Did you mean 'size'"),
        (lambda config: config.set_path("speed.up", 1), "speed.up=1: speed has nothing inside"),
        (lambda config: Outer(nver=1), "nver: outer has no such setting. Did you mean 'never'.*'things'"),
        (lambda config: setattr(config, "xyzzy", 1), r"xyzzy: outer has no such setting.$"),
    ],
)
def test_misspelt_names_are_refused_with_the_nearest(change, message):
    with pytest.raises(ConfigError, match=message):
        change(Outer())


def test_dotted_paths_reach_inside():
    config = Outer(other={"a": {"b": 1, "c": 2}})
    config.set_path("inner.size", 7).set_path("other.a.b", 3).set_path("other.d.e", 4).set_path("speed", 2)
    assert (config.inner.size, config.speed) == (7, 2.0)
    assert config.other == {"a": {"b": 3, "c": 2}, "d": {"e": 4}}


def test_frozen_settings_refuse_changes_and_their_copy_takes_them():
    config = Outer().freeze()
    with pytest.raises(ConfigError, match=r"speed=2: the configuration is frozen"):
        config.speed = 2
    with pytest.raises(ConfigError, match=r"inner.size=2: the configuration is frozen"):
        config.inner.size = 2
    copy = config.copy()
    copy.inner.size = 5
    assert (copy.inner.size, config.inner.size) == (5, 2)


def test_equality_and_text_follow_the_values():
    assert Outer() == Outer()
    assert Outer() != Outer(speed=2)
    assert Outer() != Faster()
    assert repr(Outer(speed=2, inner={"size": 3})) == "Outer(speed=2.0, inner=Inner(size=3))"


def test_settings_travel_between_processes():
    config = AlgorithmConfig().training(lr=0.5, model={"fcnet_hiddens": [8]}).freeze()
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    with pytest.raises(ConfigError, match="frozen"):
        again.lr = 1.0


def test_model_defaults_are_those_of_the_table():
    model = ModelConfig()
    assert (model.fcnet_hiddens, model.fcnet_activation, model.conv_filters) == ([256, 256], "tanh", None)
    assert (model.conv_activation, model.post_fcnet_hiddens, model.vf_share_layers) == ("relu", [], True)
    assert (model.max_seq_len, model.lstm_cell_size, model.attention_init_gru_gate_bias) == (20, 256, 2.0)
