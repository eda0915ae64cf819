"""Requests in a script other than Latin: what in them may be a name, for which a value in Latin letters may stand (巴黎, Paris).

A translation cannot be looked up, so all that is known is whether the request has room for a name (docs/decisions/grounds.md).
"""

import re
from typing import Final

from ..dialects.replies import before_reminder

_MARKED: Final = re.compile(r"[0-9@\\]|^[/~.]")
_LATIN: Final = re.compile(r"[A-Za-z]")
_OTHER_SCRIPT: Final = re.compile(r"[\u0370-\u1fff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_MAY_BE_NAME: Final = re.compile(r"[\u3400-\u9fff]{2}|[\u0370-\u1fff\u3040-\u30ff\uac00-\ud7af]")
# What tools are often for: a word of a Chinese request -> words of tools' names.
IN_ENGLISH: Final = {
    **dict.fromkeys(["天气", "气温", "下雨", "下雪"], "weather forecast temperature"),
    **dict.fromkeys(["邮件", "邮箱"], "email mail"),
    **dict.fromkeys(["新闻", "消息"], "news messages"),
    **dict.fromkeys(["机票", "航班"], "flights"),
    **dict.fromkeys(["酒店", "宾馆"], "hotels"),
    **dict.fromkeys(["餐厅", "饭店", "餐馆"], "restaurants"),
    **dict.fromkeys(["日程", "会议", "日历"], "calendar events meetings schedule"),
    **dict.fromkeys(["股价", "股票"], "stocks share price"),
    **dict.fromkeys(["路线", "怎么走"], "route directions"),
    "汇率": "exchange currency",
    "价格": "price",
    "订单": "orders",
    "文件": "files",
    "笔记": "notes",
    "电影": "movies films",
    "音乐": "music songs",
    "时间": "time",
}

# Words of Chinese requests that are not names. What is left of a request without them may be a name.
_NO_NAME: Final = re.compile(
    "|".join(
        [
            *IN_ENGLISH,
            r"大[前后]天|[今明后昨前][天日晚早年]|现在|目前|当前|最近|刚才|[早晚]上|[上下中]午|半夜|周末",
            r"[上下本这]个?(?:周|星期|月)|(?:周|星期)[一二三四五六日天]|几[点号]|日期",
            r"怎么[样办]?|怎样|如何|什么|多[少久大]|哪[个些里儿]|为什么|是不是|有没有|会不会|能不能|可不可以|可以|能否|是否",
            r"请问|麻烦|帮忙|帮[我您]?|告诉|给我|查[询找看]|查一?下?|看看|看一?下|搜索|搜一?下?|知道|想[要问]|想知道|我想问|需要",
            r"一[下个些份封条张]|[我你]们|[您你]好|大家|自己|[这那][里边]|当地|附近|外面|本地",
            r"预报|温度|湿度|[有刮][雨风]|会[冷热]|冷不冷|热不热|冷|热|车票|信息|短信|提醒|地图|预[订定]|发送|打开|播放|推荐|设置",
            r"[我你您的了吗呢吧啊呀嘛请]",
        ]
    )
)
_POINTS_BACK: Final = re.compile(
    r"\b(?:it|its|that|this|them|these|those|their|there|then|him|her|his|again|back|same|previous|other|result)\b"
    r"|[它他她这那再呢]|刚才|上面|结果|一样",
    re.IGNORECASE,
)


def has_other_script(text: str) -> bool:
    """Say whether a text contains a script other than Latin."""
    return bool(_OTHER_SCRIPT.search(text))


def may_have_name(text: str) -> bool:
    """Say whether a text has what may be a name in a script other than Latin; a reminder of ours after it does not count."""
    return has_other_script(text) and bool(_MAY_BE_NAME.search(_NO_NAME.sub(" ", before_reminder(text))))


def may_be_translation(value: str) -> bool:
    """Say whether a value may be a name in Latin letters; numbers, paths and addresses are not translated."""
    return bool(_LATIN.search(value) and not _MARKED.search(value))


def points_back(request: str) -> bool:
    """Say whether a request refers to what was said before it."""
    return bool(_POINTS_BACK.search(request))
