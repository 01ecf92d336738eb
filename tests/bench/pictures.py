"""Pictures of a report for the README, by Chromium. Run by `make pictures PAGE=report.html`."""

import argparse
import base64
import sys
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.browser import BROWSER, DRIVER, FLAGS

VIEWS = {"report": (1280, 0, 1180), "map": (1280, 1180, 1900)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    options = parser.parse_args()
    chrome = webdriver.ChromeOptions()
    chrome.binary_location = BROWSER
    for flag in (*FLAGS, "--hide-scrollbars"):
        chrome.add_argument(flag)
    driver = webdriver.Chrome(options=chrome, service=Service(DRIVER))
    options.out.mkdir(exist_ok=True)
    try:
        for name, (width, top, bottom) in VIEWS.items():
            size = {"width": width, "height": bottom, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            driver.get(options.page.absolute().as_uri())
            time.sleep(0.5)
            clip = {"x": 0, "y": top, "width": width, "height": bottom - top, "scale": 1}
            shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "format": "png"})
            (options.out / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
