"""Profiles: read strictly, written so that they are read again, found by fingerprint."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import xmlcall
from xmlcall import Profile, UsageError
from xmlcall.backends.server_facts import PIECE_BYTES, of_digest, of_file, of_name, of_template
from xmlcall.dialects import DIALECTS
from xmlcall.models import known as models
from xmlcall.models.known import KNOWN
from xmlcall.profiles.profile import Figure, Measurement, Rate, file_of, find, listed, named, read_profile, write_profile
from xmlcall.prompting.format import FAMILIES
from xmlcall.toml_file import MOST_BYTES


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XMLCALL_PROFILES", str(tmp_path / "profiles"))
    (tmp_path / "profiles").mkdir()
    return tmp_path / "profiles"


SHARES = st.floats(0, 1)
RATES = st.builds(Rate, right=st.integers(0, 99), total=st.integers(0, 99), low=SHARES, high=SHARES)
WORDS = st.text(max_size=50)
MEASUREMENTS = st.builds(
    Measurement,
    on=st.dates().map(str),
    version=WORDS,
    cases=WORDS,
    figures=st.lists(st.builds(Figure, way=WORDS, calls=RATES, none=RATES), max_size=3).map(tuple),
)
PROFILES = st.builds(
    Profile,
    model=st.text(min_size=1, max_size=50),
    fingerprints=st.lists(st.from_regex(r"[a-z.]{1,9}:[0-9a-f]{16}", fullmatch=True), max_size=3).map(tuple),
    way=st.sampled_from(["xml", "native"]),
    dialect=st.sampled_from(sorted(DIALECTS)),
    family=st.sampled_from(sorted(FAMILIES)),
    call_threshold=st.one_of(st.sampled_from(["auto", "off"]), st.floats(allow_nan=False, allow_infinity=False)),
    sampling=st.none() | st.sampled_from(["server", "greedy", "recommended"]),
    temperature=st.none() | SHARES,
    top_k=st.none() | st.integers(0, 99),
    presence_penalty=st.none() | SHARES,
    measured=st.none() | MEASUREMENTS,
)


@given(PROFILES)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, profile: Profile) -> None:
    file = tmp_path_factory.mktemp("one") / "folder" / "profile.toml"
    write_profile(profile, file)
    assert read_profile(file) == profile


GOOD = 'model = "m"\n'
MEASURED = '[measured]\non = "2026-11-23"\nversion = "1"\ncases = "x"\n'
REFUSED = [
    ("", "'model' is a required property"),
    (GOOD + "x\n", "expected TOML in .*line 2"),
    (GOOD + "spelled = 1\n", "spelled: unknown key; expected model, fingerprints, way"),
    (GOOD + MEASURED + "more = 1\n", r"measured: .*'more' was unexpected"),
    ("model = 1\n", "model: 1 is not of type 'string'"),
    ('model = ""\n', "model: "),
    (GOOD + 'way = "json"\n', r"way: 'json' is not one of \['xml', 'native', 'none'\]"),
    (GOOD + 'dialect = "morse"\n', "unknown dialect 'morse'"),
    (GOOD + 'dialect = "../mine.toml"\n', "expected the name of a wire format, got '../mine.toml'"),
    (GOOD + 'dialect = "auto"\n', "expected one wire format"),
    (GOOD + 'family = "royal"\n', "unknown family of prompts 'royal'; known: list"),
    (GOOD + 'call_threshold = "high"\n', "call_threshold: "),
    (GOOD + "call_threshold = nan\n", "call_threshold: expected a finite number"),
    (GOOD + "call_threshold = true\n", "call_threshold: "),
    (GOOD + 'sampling = "wild"\n', r"sampling: 'wild' is not one of \['server', 'greedy', 'recommended'\]"),
    (GOOD + "temperature = true\n", "temperature: True is not of type 'number'"),
    (GOOD + "temperature = inf\n", "temperature: expected a finite number, got inf"),
    (GOOD + "top_k = 0.5\n", "top_k: 0.5 is not of type 'integer'"),
    (GOOD + 'fingerprints = "gguf:1"\n', "fingerprints: 'gguf:1' is not of type 'array'"),
    (GOOD + 'fingerprints = ["../x"]\n', r"fingerprints\[0\]: "),
    (GOOD + MEASURED.replace("2026-11-23", "today"), "measured.on: 'today' does not match"),
    (GOOD + f"x = {'[' * 5000}", "expected TOML in|there is no such key"),
    (GOOD + "#" * MOST_BYTES, "of 65,536 bytes at most"),
    ("model = '\udc80'", "expected TOML in"),
]


@pytest.mark.parametrize(("text", "told"), REFUSED, ids=range(len(REFUSED)))
def test_a_broken_file_is_refused_with_what_was_expected(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=told) as raised:
        read_profile(file)
    assert str(file) in str(raised.value)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("value", ["false", "true"])
def test_a_setting_that_earlier_versions_wrote_is_passed_over(tmp_path: Path, value: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'{GOOD}dialect = "hermes"\nconstrain = {value}\n')
    assert read_profile(file) == Profile(model="m", dialect="hermes")


def test_a_folder_is_no_profile(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a profile in"):
        read_profile(tmp_path)
    with pytest.raises(UsageError, match="cannot write the profile"):
        write_profile(Profile(model="m"), tmp_path)


def test_known_models_have_a_profile_that_says_what_is_the_default() -> None:
    shipped = {found.name: found for found in listed() if found.source == "shipped"}
    assert shipped.keys() == KNOWN.keys()
    for name, found in shipped.items():
        assert found.profile is not None, found.problem
        assert found.profile.model == name
        assert find(found.profile.fingerprints) == found
        assert named(name) == found


def test_the_persons_profile_goes_before_a_shipped_one(folder: Path) -> None:
    name = next(iter(KNOWN))
    shipped = named(name)
    assert shipped.profile is not None
    write_profile(replace(shipped.profile, call_threshold="off"), folder / "other-name.toml")
    found = find(shipped.profile.fingerprints)
    assert found is not None
    assert (found.source, found.name, found.profile and found.profile.call_threshold) == ("yours", "other-name", "off")
    assert named(name).source == "shipped"
    write_profile(shipped.profile, folder / f"{name}.toml")
    assert named(name).source == "yours"
    assert sum(each.name == name for each in listed()) == 1


def test_a_file_that_cannot_be_read_is_told_of_and_passed_over(folder: Path) -> None:
    (folder / "a.toml").write_text("model = 1")
    write_profile(Profile(model="m", fingerprints=("gguf:1",)), folder / "b.toml")
    told: list[str] = []
    found = find(("gguf:1",), told.append)
    assert found is not None
    assert found.name == "b"
    assert len(told) == 1
    assert "a.toml: model" in told[0]
    with pytest.raises(UsageError, match=r"a\.toml: model"):
        named("a")


def test_no_fingerprint_no_profile(folder: Path) -> None:
    write_profile(Profile(model="m"), folder / "m.toml")
    assert find(()) is None
    assert find(("gguf:1",)) is None


@pytest.mark.parametrize("name", ["../x", "", "nobody", "qwen2.5-coder-0.5", "a/b", "x" * 500])
def test_a_name_that_there_is_not(name: str) -> None:
    with pytest.raises(UsageError, match="expected the name of a profile") as raised:
        named(name)
    assert ("Did you mean qwen2.5-coder-0.5b" in str(raised.value)) == name.startswith("qwen")


@pytest.mark.parametrize(
    ("model", "file"),
    [
        ("gemma3:4b", "gemma3-4b"),
        ("/models/My Model.gguf", "My-Model.gguf"),
        ("..", "model"),
        ("你好", "你好"),
        ("a\x00b", "a-b"),
    ],
)
def test_the_file_of_a_model(folder: Path, model: str, file: str) -> None:
    assert file_of(model) == folder / f"{file}.toml"
    assert named(file_and_write(model)).profile == Profile(model=model)


def file_and_write(model: str) -> str:
    write_profile(Profile(model=model), file_of(model))
    return file_of(model).stem


def test_a_profile_is_public() -> None:
    assert xmlcall.Profile(model="m").words == "xml, list, threshold auto"
    assert Profile(model="m", dialect="hermes", call_threshold=-2.5).words == "hermes, list, threshold -2.5"
    assert Profile(model="m", way="native").words == "native"
    with pytest.raises(UsageError, match="expected one of xml, native"):
        Profile(model="m", way="json")  # type: ignore[arg-type]


# -- fingerprints ------------------------------------------------------------------------------------------------------


def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    content = os.urandom(40 * PIECE_BYTES)
    one, other = tmp_path / "one.gguf", tmp_path / "other.gguf"
    one.write_bytes(content)
    other.write_bytes(content)
    assert of_file(one) == of_file(other)
    for changed in (b"x" + content[1:], content[:-1] + b"x", content + b"x", b""):
        other.write_bytes(changed)
        assert (of_file(one) == of_file(other)) == (changed == content)


@pytest.mark.live
@pytest.mark.parametrize("name", KNOWN)
def test_the_shipped_fingerprint_is_that_of_the_file(name: str) -> None:
    path = models.path(name)
    if path is None:
        pytest.skip(f"{name} is not here")
    profile = named(name).profile
    assert profile is not None
    assert profile.fingerprints[0] == of_file(path)


def test_fingerprints_say_what_they_are_of() -> None:
    assert of_digest("SHA256:AB"[7:] * 40) == "ollama:" + "ab" * 8
    assert of_template("a", "b") != of_template("ab", "") != of_name("ab")
    assert of_name("\udc80").startswith("model:")


def test_a_truth_value_is_no_threshold() -> None:
    with pytest.raises(UsageError, match="call_threshold: expected a finite number"):
        Profile(model="m", call_threshold=True)
