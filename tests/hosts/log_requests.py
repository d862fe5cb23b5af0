"""An add-on for mitmproxy: one line a request, by which a trial shows that it went through the proxy."""

from pathlib import Path

from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader


def load(loader: Loader) -> None:
    loader.add_option("requests_file", str, "", "the file to write to")


def response(flow: http.HTTPFlow) -> None:
    if flow.response is None:
        return
    with Path(ctx.options.requests_file).open("a") as file:
        file.write(f"{flow.response.status_code} {flow.request.method} {flow.request.pretty_url}\n")
