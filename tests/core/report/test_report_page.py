"""The page and its pictures as text; tests/pipelines/report opens it in a browser."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from sbert_core.json_record import decode, encode
from sbert_core.report.bar_chart import BarSet, bar_chart, short_number
from sbert_core.report.facts import (
    ClusterItem,
    ClusterList,
    ClusterRow,
    GateLine,
    Headline,
    QuarantineList,
    ReportFacts,
    Table,
    TextMap,
)
from sbert_core.report.line_chart import Series, line_chart
from sbert_core.report.page import render_page

HOSTILE = "</script><script>alert(1)</script>\u202e"
EMPTY = ReportFacts(
    title="t", subtitle="s", headline=(), gates=(), lengths=None, throughput=None, similarity=None,
    curve=(), clusters=ClusterList(), map=TextMap(), quarantine=QuarantineList(), training=(),
    scores=(), index=(), certificate=(), stages=(), notes=(),
)  # fmt: skip


def test_page_without_facts_has_no_section():
    assert "<section" not in render_page(EMPTY)


def test_page_escapes_texts_in_html_and_in_its_data():
    row = ClusterRow(id=HOSTILE, text=HOSTILE, reason=None)
    item = ClusterItem(id=HOSTILE, rows=2, kept=(row,), removed=())
    html = render_page(
        replace(
            EMPTY,
            title=HOSTILE,
            headline=(Headline(label=HOSTILE, value=HOSTILE),),
            gates=(GateLine(is_met=False, note=HOSTILE),),
            clusters=ClusterList(items=(item,), sizes={"2": 1}, note=HOSTILE, total=1),
            scores=(Table(columns=(HOSTILE,), rows=((HOSTILE,), (1.5,), (None,))),),
            notes=(HOSTILE,),
        )
    )
    assert html.count("<script") == 2 and "alert(1)</script" not in html
    [data] = re.findall(r'id="data">(.*?)</script>', html)
    assert json.loads(data)["clusters"]["items"][0]["kept"][0]["text"] == HOSTILE
    assert "\u202e" not in html.replace(data, "")


def test_facts_are_read_back_from_their_json():
    facts = replace(EMPTY, gates=(GateLine(is_met=True, note="n"),), stages=(
        Table(columns=("a",), rows=((1,), ("x",), (None,))),))  # fmt: skip
    value = encode(facts)
    assert value["gates"] == [{"is_met": True, "said": "n"}]
    assert "said" not in value["stages"][0]
    assert decode(ReportFacts, value, "facts") == facts


@pytest.mark.parametrize("is_log", [False, True])
def test_bar_chart_has_a_bar_for_each_count_above_zero(is_log):
    sets = [BarSet("a & b", [0, 5, 10]), BarSet("b", [1, 0, 0])]
    chart = ET.fromstring(bar_chart("t", ["x", "y", "<z>"], sets, is_log=is_log, limit=1.5))
    bars = [e for e in chart.iter() if e.tag.endswith("rect") and len(e)]
    assert [bar[0].text for bar in bars] == ["a & b y: 5", "a & b <z>: 10", "b x: 1"]
    heights = [float(bar.get("height")) for bar in bars]
    assert heights[1] == pytest.approx(170) and 0 < heights[0] < heights[1]


def test_line_chart_leaves_out_series_without_points():
    lines = [Series("loss", [(0, 3.0), (9, 1.0)]), Series("score", [], is_second=True)]
    chart = ET.fromstring(line_chart("t", "step", lines))
    assert len([e for e in chart.iter() if e.tag.endswith("polyline")]) == 1


def test_short_number_has_three_digits():
    assert [short_number(v) for v in (0, 12.34, 1234, 5.678e6, 2e9)] == [
        "0", "12.3", "1.23k", "5.68M", "2G"
    ]  # fmt: skip
