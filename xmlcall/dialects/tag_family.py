"""The tag family: formats whose calls and parameters are tags."""

from typing import Any

from .dialect import ATTRIBUTES, OWN_RESULTS, SPACE, TOOL_RESPONSES, Dialect, ResultForm, TypeMark, element, pairs, tag


def _attribute_tags(block: str, prefix: str = "", call: str = "invoke") -> dict[str, str]:
    return pairs(
        block=(tag(f"<{block}"), tag(f"</{block}")),
        call=(tag(f"<{prefix}{call}", ATTRIBUTES, "/?>"), tag(f"</{prefix}{call}")),
        parameter=(tag(f"<{prefix}param(?:eter)?", ATTRIBUTES, "/?>"), tag(f"</{prefix}param(?:eter)?")),
    )


def _attributes(
    name: str,
    block: str,
    tags: dict[str, str],
    *,
    prefix: str = "",
    words: tuple[str, str] = ("invoke", "parameter"),
    types: tuple[str, str, str] = ("type", "json", "string"),
    **more: Any,
) -> Dialect:
    """Return a format that states names in the attribute `name`, and types in one that has these two values."""
    (call, parameter), (attribute, json, string) = words, types
    json_mark, string_mark = (
        TypeMark(written=f'<{prefix}{parameter} name="{{name}}" {attribute}="{value}">', attribute=attribute, value=value)
        for value in (json, string)
    )
    # With an attribute of its own for strings, every parameter says whether it is one.
    opener = string_mark.written if attribute == "string" else f'<{prefix}{parameter} name="{{name}}">'
    written = pairs(
        block=(f"<{block}>", f"</{block}>"),
        call=(f'<{prefix}{call} name="{{name}}">', f"</{prefix}{call}>"),
        parameter=(opener, f"</{prefix}{parameter}>"),
    )
    return Dialect(name=name, tags=tags, written=written, json_mark=json_mark, string_mark=string_mark, **more)


def _name_in_tag(name: str, block: str, results: ResultForm = OWN_RESULTS, read_block: str = "") -> Dialect:
    """Return a format with the name in the tag, without an attribute; `read_block` may accept other names of the wrapper."""
    return Dialect(
        name=name,
        tags=pairs(
            block=(tag(f"<{read_block or block}"), tag(f"</{read_block or block}")),
            call=(
                # `<function=f={"a": 1}</function>`, as Groq writes Llama's calls: the object begins where the tag would end.
                # `<function f>`, with a blank for the equals sign.
                tag("<function=", r"\s{0,4}[^\s<>={]{1,128}\s{0,4}", r"(?:>|=?(?=\{))")
                + "|"
                + tag("<function", r"\s{1,4}[^\s<>=\"'/]{1,128}\s{0,4}"),
                tag("</function"),
            ),
            parameter=(
                # `<parameter=a=1</parameter>`: a second equals sign for the bracket. `<parameter name="a" string=` belongs to
                # another format.
                tag(r"<parameter(?:\s{1,4}name)?=", r"\s{0,4}[^<>=\s](?:[^<>=]{0,127}>|[^<>=\s]{0,127}\s{0,4}=)", ""),
                tag("</parameter"),
            ),
        ),
        written=pairs(
            block=(f"<{block}>", f"</{block}>"),
            call=("<function={name}>", "</function>"),
            parameter=("<parameter={name}>", "</parameter>"),
        ),
        name_in_tag=r"""(?:=|\A<function\s)\s*["']?([^<>="']+?)["']?\s*(?:[>=]|\Z)""",
        results=results,
    )


def _step(words: str) -> str:
    return f"<{_BAR}tool{_GAP}{words.replace(' ', _GAP)}{_BAR}>"


def _section(word: str, *, closing: bool = False, attributes: str = "") -> str:
    return rf"<\|{'close' if closing else 'open'}\|>\s{{0,2}}{word}{attributes}\s{{0,2}}<\|sep\|>"


_PREFIX = r"[A-Za-z]{1,16}:"  # an XML prefix
_BAR, _GAP = r"[\uff5c|]", r"[\u2581_ ]"  # for DeepSeek and Step
_BARS = "\uff5cDSML\uff5c"
_BARS_READ = "[\uff5c|\u2016]{1,2}DSML[\uff5c|\u2016]{1,2} ?"  # detokenizers write other bars, V4.1 a blank
_DSML_BLOCK = "(?:(?:function_|tool_?)?calls?)"
_NAME = rf"{SPACE}[^\s<>]{{1,128}}{SPACE}"
_QUOTE = r"(?:[\"']|&quot;|&#3[49];)"  # for `escaped`
_WORD = r":\w{1,32}"  # after each name of Hunyuan
_KEY = r"\s{1,4}\w{1,16}=\"[^\"]{0,256}\""  # for Kimi
_BEFORE = r"\]<\]minimax\[>\["  # the mark of MiniMax, as a pattern
_MARK = "]<]minimax[>["

TAGS = (
    # Cline, Roo Code and others: the tool's name is the element, and so is each parameter's. The tags come with the tools.
    Dialect(
        name="tool_name",
        tags={},
        written=pairs(call=("<{name}>", "</{name}>"), parameter=("<{name}>", "</{name}>")),
        tool_elements=True,
        parameter_elements=True,
        open_entities=True,
    ),
    # Our own.
    _attributes("function_calls", "function_calls", _attribute_tags("(?:function|tool)_calls"), one_block=True),
    # The same under an XML prefix, which some models carry over from their training; every tag has one.
    _attributes(
        "prefixed",
        "ns:function_calls",
        {
            **_attribute_tags(f"(?:{_PREFIX}function_calls|steptml:toolcalls?)", _PREFIX),
            # In such a call, a parameter without the prefix counts, too.
            "parameter_open": tag(f"<(?:{_PREFIX})?param(?:eter)?", ATTRIBUTES, "/?>"),
            "parameter_close": tag(f"</(?:{_PREFIX})?param(?:eter)?"),
        },
        prefix="ns:",
    ),
    # MiniMax-M2: its own wrapper around the same calls.
    _attributes("minimax", "minimax:tool_call", _attribute_tags("minimax:tool_call"), open_entities=True),
    # DeepSeek V3.2 and later: every tag between full-width bars; each parameter says whether it is a string.
    _attributes(
        "dsml",
        f"{_BARS}function_calls",
        {
            **_attribute_tags(f"{_BARS_READ}{_DSML_BLOCK}", _BARS_READ),
            "block_open": tag(f"<{_BARS_READ}{_DSML_BLOCK}", "", r"(?:[>|]|(?=\r?\n))"),
        },
        prefix=_BARS,
        types=("string", "false", "true"),
        is_exact=True,
    ),
    # Qwen3-Coder; OpenHands without wrapper.
    _name_in_tag("qwen", "tool_call", TOOL_RESPONSES, "(?:zyphra_)?tool_call"),
    # Seed-OSS.
    _name_in_tag("seed", "seed:tool_call"),
    # Attribute names again, other elements: what models make of Qwen's format when they fall back to XML habits.
    _attributes("function_name", "tool_call", _attribute_tags("tool_call", call="function"), words=("function", "param")),
    # GLM 4.5 and later: the tool's name is text after the opener, keys and values are elements of their own.
    Dialect(
        name="glm",
        tags={
            "block_open": tag("<(?:iquest(?:coder)?_)?tool_call"),
            "call_close": tag("</(?:iquest(?:coder)?_)?tool_call"),
            "name_end": "<tool_sep>",  # Hunyuan 3
            # A tag may be missing or doubled: the opener and one of the other two identify a key.
            "parameter_open": r"(?:<arg_key>){1,2}[^<>]{1,128}"
            rf"(?:(?:</arg_key>{SPACE}){{1,2}}(?:<arg_value>|(?=[^<\s]))|<arg_value>)",
            "parameter_close": tag("</arg_value"),
        },
        written=pairs(
            call=("<tool_call>{name}", "</tool_call>"), parameter=("<arg_key>{name}</arg_key>\n<arg_value>", "</arg_value>")
        ),
        name_in_tag=r"<arg_key>\s*([^<>]+?)\s*<",
        name_after=tag("<(?:iquest(?:coder)?_)?tool_call"),
        is_exact=True,
        results=TOOL_RESPONSES,
    ),
    # ZAYA1: the name in an element, each parameter an element that holds its name and its value.
    Dialect(
        name="zaya",
        tags=pairs(
            block_open=tag("<(?:zyphra_)?tool_call"),
            call_close=tag("</(?:zyphra_)?tool_call"),
            parameter=(rf"<name>{_NAME}</name>{SPACE}<value>", "</value>"),
            list_close="</?parameter>",
        ),
        written=pairs(
            call=("<zyphra_tool_call>{name}", "</zyphra_tool_call>"),
            parameter=("<parameter><name>{name}</name><value>", "</value></parameter>"),
        ),
        name_in_tag=r"<name>\s*([^<>]+?)\s*<",
        name_after=tag("<(?:zyphra_)?tool_call"),
    ),
    # LongCat, where it does not write JSON: as GLM, under names of its own.
    Dialect(
        name="longcat_keys",
        tags=pairs(
            call=(r"<longcat_tool_call>\s{0,8}[\w.\-]{1,128}\s{0,8}(?=<)", "</longcat_tool_call>"),
            parameter=(
                rf"<longcat_arg_key>[^<>]{{1,128}}(?:</longcat_arg_key>{SPACE})?<longcat_arg_value>",
                "</longcat_arg_value>",
            ),
        ),
        written=pairs(
            call=("<longcat_tool_call>{name}\n", "</longcat_tool_call>"),
            parameter=("<longcat_arg_key>{name}</longcat_arg_key>\n<longcat_arg_value>", "</longcat_arg_value>"),
        ),
        name_in_tag=r"<longcat_(?:tool_call|arg_key)>\s*([^<>]+?)\s*(?:<|\Z)",
        is_exact=True,
    ),
    # Hunyuan 4: as GLM, with a word of the vocabulary after each name.
    Dialect(
        name="hunyuan",
        tags=pairs(
            block=(f"<tool_calls{_WORD}>", f"</tool_calls{_WORD}>"),
            call=(rf"<tool_call{_WORD}>\s{{0,8}}[\w.\-]{{1,128}}\s{{0,8}}(?=<)", f"</tool_call{_WORD}>"),
            parameter=(rf"<arg_key{_WORD}>[^<>]{{1,128}}(?:</arg_key{_WORD}>{SPACE})?<arg_value{_WORD}>", f"</arg_value{_WORD}>"),
        ),
        written=pairs(
            block=("<tool_calls:opensource>", "</tool_calls:opensource>"),
            call=("<tool_call:opensource>{name}", "</tool_call:opensource>"),
            parameter=("<arg_key:opensource>{name}</arg_key:opensource><arg_value:opensource>", "</arg_value:opensource>"),
        ),
        name_in_tag=rf"<(?:tool_call|arg_key){_WORD}>\s*([^<>]+?)\s*(?:<|\Z)",
        is_exact=True,
        joint="",
        results=ResultForm(
            frame_open="<tool_responses:opensource>",
            result_open="<tool_response:opensource>\n",
            result_close="\n</tool_response:opensource>",
            frame_close="</tool_responses:opensource>",
        ),
    ),
    # K2 Horizon: as GLM, under names of its own, and with the type of each value, which the schema says, too.
    Dialect(
        name="k2_horizon",
        tags=pairs(
            block=(r"<ifm\|tool_calls>", r"</ifm\|tool_calls>"),
            call=(r"<ifm\|tool_call>\s{0,8}[\w.\-]{1,128}\s{0,8}(?=<)", r"</ifm\|tool_call>"),
            parameter=(
                rf"<ifm\|arg_key>[^<>]{{1,128}}</ifm\|arg_key>{SPACE}"
                rf"(?:<ifm\|arg_type>[^<>]{{0,64}}</ifm\|arg_type>{SPACE})?<ifm\|arg_value>",
                r"</ifm\|arg_value>",
            ),
            reasoning=(r"<ifm\|think>", r"</ifm\|think>"),
        ),
        written=pairs(
            block=("<ifm|tool_calls>", "</ifm|tool_calls>"),
            call=("<ifm|tool_call>{name}\n", "</ifm|tool_call>"),
            parameter=("<ifm|arg_key>{name}</ifm|arg_key><ifm|arg_value>", "</ifm|arg_value>"),
        ),
        name_in_tag=r"<ifm\|(?:tool_call|arg_key)>\s*([^<>]+?)\s*(?:<|\Z)",
        is_exact=True,
    ),
    # Step 3: a call of the prefixed form between the marks of DeepSeek.
    Dialect(
        name="step3",
        tags=pairs(
            block=(_step("calls begin"), _step("calls end")),
            call=(
                rf"{_step('call begin')}\s{{0,8}}(?:function\s{{0,8}}{_step('sep')}\s{{0,8}})?"
                r"<steptml:invoke\s{1,4}name=\"[^\s<>\"]{1,128}\"\s{0,4}>",
                _step("call end"),
            ),
            parameter=(r"<steptml:parameter\s{1,4}name=\"[^<>\"]{1,128}\"\s{0,4}>", "</steptml:parameter>"),
            list_close="</steptml:invoke>",
        ),
        written=pairs(
            block=("<\uff5ctool_calls_begin\uff5c>", "<\uff5ctool_calls_end\uff5c>"),
            call=(
                '<\uff5ctool_call_begin\uff5c>function<\uff5ctool_sep\uff5c><steptml:invoke name="{name}">',
                "</steptml:invoke><\uff5ctool_call_end\uff5c>",
            ),
            parameter=('<steptml:parameter name="{name}">', "</steptml:parameter>"),
        ),
        name_in_tag=r"name=\"([^\"]+)\"",
        joint="",
    ),
    # Solar Open 2: the name is the rest of its line.
    Dialect(
        name="solar",
        tags=pairs(
            call=(r"<\|tool_call:start\|>[^\n<|]{1,128}\n", r"<\|tool_call:end\|>"),
            parameter=(r"<\|tool_arg:start\|>[^<>|\n]{1,128}<\|tool_arg:value\|>", r"<\|tool_arg:end\|>"),
            reasoning=(r"<\|think:start\|>", r"<\|think:end\|>"),
        ),
        written=pairs(
            call=("<|tool_call:start|>{name}\n", "<|tool_call:end|>"),
            parameter=("<|tool_arg:start|>{name}<|tool_arg:value|>", "<|tool_arg:end|>"),
        ),
        name_in_tag=r":start\|>\s*([^<>|\n]+?)\s*(?:<|\Z)",
        is_exact=True,
        joint="",
    ),
    # Kimi K3: sections; each argument says its type.
    Dialect(
        name="kimi_k3",
        tags=pairs(
            block=(_section("tools"), _section("tools", closing=True)),
            call=(_section("call", attributes=f"(?:{_KEY}){{1,4}}"), _section("call", closing=True)),
            parameter=(_section("argument", attributes=f"(?:{_KEY}){{1,4}}"), _section("argument", closing=True)),
            reasoning=(_section("think"), _section("think", closing=True)),
            text_open=_section("response"),
            special=f"{_section('response', closing=True)}|{_section('message', closing=True)}",
        ),
        written=pairs(
            block=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
            call=('<|open|>call tool="{name}" index="1"<|sep|>', "<|close|>call<|sep|>"),
            parameter=('<|open|>argument key="{name}" type="string"<|sep|>', "<|close|>argument<|sep|>"),
        ),
        name_in_tag=r"(?:tool|key)=\"([^\"]*)\"",
        json_mark=TypeMark(
            written='<|open|>argument key="{name}" type="object"<|sep|>',
            attribute="type",
            value="object",
            also=("number", "integer", "boolean", "array", "null"),
        ),
        string_mark=TypeMark(written='<|open|>argument key="{name}" type="string"<|sep|>', attribute="type", value="string"),
        is_exact=True,
        joint="",
    ),
    # MiniMax M3: a mark before every tag; parameters are elements, and so is what they hold.
    Dialect(
        name="minimax_m3",
        tags=pairs(
            block=(f"{_BEFORE}<tool_call>", f"{_BEFORE}</tool_call>"),
            call=(rf'{_BEFORE}<invoke\s{{1,4}}name="[^\s<>"]{{1,128}}"\s{{0,4}}>', f"{_BEFORE}</invoke>"),
            reasoning=("<mm:think>", "</mm:think>"),
        ),
        written=pairs(
            block=(f"{_MARK}<tool_call>", f"{_MARK}</tool_call>"),
            call=(f'{_MARK}<invoke name="{{name}}">', f"{_MARK}</invoke>"),
            parameter=(f"{_MARK}<{{name}}>", f"{_MARK}</{{name}}>"),
        ),
        parameter_elements=True,
        before_tags=_MARK,
        is_exact=True,
        joint="",
    ),
    # Anthropic's form of 2023: name and parameters are elements of fixed names, each parameter one of its own.
    Dialect(
        name="invoke_tool_name",
        tags=pairs(
            block=(tag("<function_calls"), tag("</function_calls")),
            call=(rf"<invoke>{SPACE}<tool_name>{_NAME}</tool_name>{SPACE}(?:<parameters>|(?=</invoke>))", "</invoke>"),
            list_close="</parameters>",
        ),
        written=pairs(
            block=("<function_calls>", "</function_calls>"),
            call=("<invoke>\n<tool_name>{name}</tool_name>\n<parameters>", "</parameters>\n</invoke>"),
            parameter=("<{name}>", "</{name}>"),
        ),
        name_in_tag=r"<tool_name>\s*([^<>]+?)\s*</tool_name>",
        parameter_elements=True,
    ),
    # Cherry Studio: the name is an element, the arguments are one JSON object.
    Dialect(
        name="cherry",
        tags=pairs(
            call=(rf"<tool_use>{SPACE}<name>{_NAME}</name>", element("tool_use", closing=True)),
            body_open="<arguments>",
            parameter_close=element("arguments", closing=True),
        ),
        written=pairs(
            call=("<tool_use>\n<name>{name}</name>", "</tool_use>"), body_open="<arguments>", parameter_close="</arguments>"
        ),
        name_in_tag=r"<name>\s*([^<>]+?)\s*</name>",
        json_body=True,
    ),
    # The format of the prompt as it comes out of a web page: brackets and quotes are entities, and so are those in the values.
    Dialect(
        name="escaped",
        tags=pairs(
            block=("&lt;(?:function|tool)_calls&gt;", "&lt;/(?:function|tool)_calls&gt;"),
            call=(rf"&lt;invoke\s{{1,16}}name={_QUOTE}[^\s<>\"'&]{{1,128}}{_QUOTE}\s{{0,16}}/?&gt;", "&lt;/invoke&gt;"),
            parameter=(rf"&lt;parameter\s{{1,16}}name={_QUOTE}[^<>\"'&]{{1,128}}{_QUOTE}\s{{0,16}}&gt;", "&lt;/parameter&gt;"),
        ),
        written=pairs(
            block=("&lt;function_calls&gt;", "&lt;/function_calls&gt;"),
            call=("&lt;invoke name=&quot;{name}&quot;&gt;", "&lt;/invoke&gt;"),
            parameter=("&lt;parameter name=&quot;{name}&quot;&gt;", "&lt;/parameter&gt;"),
        ),
        name_in_tag=rf"name={_QUOTE}([^<>\"'&]+){_QUOTE}",
        entities=True,
    ),
)
