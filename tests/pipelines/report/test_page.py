"""The report in a real browser: it opens, answers, and runs nothing that stands in a text.

Needs Chromium and its driver (`make browser`); pictures are left in build/screenshots.
"""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support.browser import BROWSER, DRIVER, FLAGS

from pipelines.artifacts.ids import IdIndex
from pipelines.report.browser import make_cluster_list
from pipelines.report.cluster_table import ClusterTable
from sbert_core.json_record import decode
from sbert_core.report.facts import ReportFacts
from sbert_core.report.page import render_page

PICTURES = Path(__file__).parents[3] / "build" / "screenshots"
HOSTILE = (
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "</script><script>window.hacked = 1</script>",
    "\u202egnirts desrever",
    "javascript:window.hacked=1 &quot;onmouseover=window.hacked=1",
)

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        BROWSER is None or DRIVER is None, reason="Chromium is not there: make browser"
    ),
]


class Texts:
    """A text for every row, hostile now and then."""

    def for_rows(self, numbers):
        return [
            HOSTILE[n % len(HOSTILE)] if n % 50 < 5 else f"text {n // 3} of heap {n % 3}"
            for n in numbers
        ]


def facts(num_clusters, shown):
    """Clusters of three rows each; ids and groups are hostile too."""
    number = 3 * num_clusters
    row = np.arange(number)
    ids = [f"<b>{n:07d}</b>" for n in row]
    own = ClusterTable(
        rows=IdIndex(pa.array(ids, pa.large_string()), row, pa.string()),
        samples=Texts(),  # type: ignore[arg-type]
        cluster=row // 3 * 3,
        size=np.full(number, 3),
        keep=row % 3 == 0,
        witness=np.where(row % 3, row // 3 * 3, -1),
        cos=np.where(row % 3, 0.95, np.nan),
        reason=pa.array(np.where(row % 3, "near-duplicate", "representative")),
        topic=None,
        threshold=0.9,
    )
    rng = np.random.default_rng(0)
    points = [
        {
            "x": float(x),
            "y": float(y),
            "group": n % 3,
            "id": ids[3 * n],
            "text": Texts().for_rows([3 * n])[0],
            "cluster": ids[3 * n],
        }
        for n, (x, y) in enumerate(rng.uniform(0.1, 0.9, (min(300, num_clusters), 2)))
    ]
    shown_facts = {
        "title": HOSTILE[0],
        "subtitle": HOSTILE[1],
        "headline": [{"label": HOSTILE[2], "value": "7"}],
        "gates": [
            {"is_met": True, "said": "max_removed_share 0.5: 0.1"},
            {"is_met": False, "said": HOSTILE[1]},
        ],
        "lengths": {"labels": ["0", "8"], "counts": [3, 9], "said": "lengths"},
        "throughput": {"points": [[0, 10], [1, 20]], "said": HOSTILE[0]},
        "similarity": {
            "labels": ["0.0", "0.5"],
            "sets": {"random pairs": [5, 1], "pairs found": [0, 3]},
            "limit": 1.5,
            "said": "cosines",
        },
        "curve": [{"cos": 0.9, "pairs": 9, "removed": 4}, {"cos": 1.0, "pairs": 2, "removed": 1}],
        "clusters": {},
        "map": {"points": points, "groups": [HOSTILE[1], "second", "third"], "said": "a sample"},
        "quarantine": {
            "items": [{"id": HOSTILE[0], "file": "f", "row": "1", "reason": "blank"}],
            "said": "1 row has no vector",
        },
        "training": [
            {
                "name": HOSTILE[2],
                "loss": [[1, 2.0], [2, 1.0]],
                "scores": [(0, 80.0), (2, 85.0)],
                "measure": "spearman",
                "said": "before and after",
            }
        ],
        "scores": [{"columns": ["task", HOSTILE[1]], "rows": [["sts", 81.5]]}],
        "index": [{"columns": ["", ""], "rows": [["recall@10", HOSTILE[0]]]}],
        "certificate": [],
        "stages": [],
        "notes": [HOSTILE[4]],
    }
    clusters = make_cluster_list(own, shown, seed=0)
    return replace(decode(ReportFacts, shown_facts, "facts"), clusters=clusters)


@pytest.fixture(scope="module")
def chrome():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(facts(60, 2000)), encoding="utf-8")
    return path


def opened(chrome, path, width=1280, height=900):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chrome.get(path.as_uri())
    return chrome


def test_the_page_opens_without_a_complaint_and_runs_nothing_strange(chrome, small):
    opened(chrome, small)
    assert chrome.get_log("browser") == []
    assert chrome.execute_script("return window.hacked") is None
    assert (
        chrome.execute_script("return document.querySelectorAll('main img, main b b').length") == 0
    )
    assert chrome.find_element(By.TAG_NAME, "h1").text == HOSTILE[0]
    assert chrome.title == HOSTILE[0]
    assert len(chrome.find_elements(By.CSS_SELECTOR, ".gates .failed")) == 1
    titles = [title.text for title in chrome.find_elements(By.TAG_NAME, "h2")]
    assert titles == [
        "Texts", "Similarity", "Map", "Clusters", "Training", "Scores", "Index", "Quarantine"
    ]  # fmt: skip
    body = chrome.find_element(By.TAG_NAME, "body").text
    assert "\u202e" not in body and "\u27e8U+202E\u27e9" in body


def test_clusters_are_searched_sorted_and_paged(chrome, small):
    opened(chrome, small)
    count = chrome.find_element(By.ID, "clusters-count")
    assert count.text == "60 found, page 1 of 6"
    first = chrome.find_element(By.CSS_SELECTOR, ".cluster h3").text
    chrome.find_element(By.ID, "clusters-after").click()
    assert count.text == "60 found, page 2 of 6"
    assert chrome.find_element(By.CSS_SELECTOR, ".cluster h3").text != first
    search = chrome.find_element(By.ID, "clusters-search")
    search.send_keys("text 12 of heap 1")
    assert count.text == "1 found, page 1 of 1"
    marks = chrome.find_elements(By.CSS_SELECTOR, ".cluster mark")
    assert [mark.text for mark in marks][:1] == ["1"]  # the word that differs from the witness
    search.clear()
    search.send_keys("<script>")
    assert int(count.text.split()[0]) > 0
    assert chrome.execute_script("return window.hacked") is None
    assert chrome.get_log("browser") == []


def test_the_map_answers_pointer_wheel_keys_and_search(chrome, small):
    opened(chrome, small)
    canvas = chrome.find_element(By.ID, "map")
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    point = facts(60, 10).map.points[7]
    size = canvas.size
    x = (point.x - 0.5) * size["width"]
    y = (point.y - 0.5) * size["height"]
    ActionChains(chrome).move_to_element_with_offset(canvas, int(x), int(y)).perform()
    tip = chrome.find_element(By.ID, "tip")
    assert tip.is_displayed() and point.id in tip.text
    PICTURES.mkdir(parents=True, exist_ok=True)
    chrome.save_screenshot(str(PICTURES / "map.png"))
    ActionChains(chrome).scroll_by_amount(0, 0).perform()
    chrome.execute_script(
        "arguments[0].dispatchEvent(new WheelEvent('wheel', {deltaY: -100, bubbles: true, "
        "cancelable: true, clientX: 300, clientY: 300}))",
        canvas,
    )
    assert float(canvas.get_attribute("data-zoom")) == 1.25
    canvas.send_keys("+")
    assert float(canvas.get_attribute("data-zoom")) > 1.5
    chrome.find_element(By.ID, "map-reset").click()
    assert float(canvas.get_attribute("data-zoom")) == 1.0
    chrome.find_element(By.ID, "map-search").send_keys("text 2")
    assert " of 60 points" in chrome.find_element(By.ID, "map-count").text
    ActionChains(chrome).move_to_element_with_offset(canvas, int(x), int(y)).click().perform()
    assert chrome.find_element(By.ID, "clusters-search").get_attribute("value") == point.id
    assert chrome.find_element(By.ID, "clusters-count").text.startswith("1 found")


def test_the_keyboard_reaches_every_control(chrome, small):
    opened(chrome, small)
    seen = set()
    for _ in range(40):
        ActionChains(chrome).send_keys(Keys.TAB).perform()
        seen.add(chrome.execute_script("return document.activeElement.id"))
    assert {"map-search", "map-in", "map", "clusters-search", "clusters-sort"} <= seen
    unnamed = chrome.execute_script(
        "return [...document.querySelectorAll('input,select,button')].filter(e => "
        "!e.labels?.length && !e.ariaLabel && !e.textContent.trim()).length"
    )
    assert unnamed == 0


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_it_fits_wide_and_narrow_screens(chrome, small, width, scheme):
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    opened(chrome, small, width)
    assert chrome.execute_script("return document.documentElement.scrollWidth") <= width
    PICTURES.mkdir(parents=True, exist_ok=True)
    chrome.save_screenshot(str(PICTURES / f"page-{width}-{scheme}.png"))
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_hundred_thousand_clusters_are_sampled_and_quick(chrome, tmp_path):
    many = facts(100_000, 2000)
    assert many.clusters.total == 100_000 and len(many.clusters.items) == 2000
    assert many.clusters.note.count("1,000") == 2
    path = tmp_path / "many.html"
    path.write_text(render_page(many), encoding="utf-8")
    assert path.stat().st_size < 5e6
    start = time.monotonic()
    opened(chrome, path)
    assert chrome.find_element(By.ID, "clusters-count").text == "2,000 found, page 1 of 200"
    chrome.find_element(By.ID, "clusters-search").send_keys("heap 2")
    assert "found, page 1" in chrome.find_element(By.ID, "clusters-count").text
    assert time.monotonic() - start < 20
    assert many.clusters.note in chrome.find_element(By.ID, "clusters").text
