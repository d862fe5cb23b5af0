"""What the tests ask a browser about a page's looks."""

from __future__ import annotations

import re

PHONE, DESKTOP = 390, 1440
"""Widths of the screens that pages are looked at on, in CSS pixels."""

CONTRAST = """
const parse = (text) => {
  const found = text.match(/rgba?\\(([^)]+)\\)/);
  if (!found) return null;
  const parts = found[1].split(/[ ,/]+/).filter(Boolean).map(Number);
  return {rgb: parts.slice(0, 3), alpha: parts.length > 3 ? parts[3] : 1};
};
const light = (rgb) => {
  const [r, g, b] = rgb.map((c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const found = parse(getComputedStyle(each).backgroundColor);
    if (found && found.alpha === 1) return found.rgb;
  }
  return [255, 255, 255];
};
const worst = new Map();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || element.closest("svg, script, style, .skip, [hidden]")) continue;
  const front = parse(getComputedStyle(element).color).rgb;
  const back = behind(element);
  const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
  const ratio = (high + 0.05) / (low + 0.05);
  const key = `${element.tagName}.${element.className} ${front} on ${back}`;
  worst.set(key, ratio);
}
return [...worst].filter(([, ratio]) => ratio < 4.5);
"""


def size(browser, width: int, height: int = 900) -> None:
    override = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", override)


def theme(browser, scheme: str, media: str = "") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def printed_pages(pdf: bytes) -> int:
    """How many pages a PDF of Chromium has."""
    return max(int(count) for count in re.findall(rb"/Count (\d+)", pdf))
