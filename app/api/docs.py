"""`/docs`: the OpenAPI document as a page. All of it comes from here: it works without the internet, and no foreign
script ever stands beside the API key that somebody enters."""

import base64
import hashlib
import importlib.resources
import re

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.staticfiles import StaticFiles
from starlette.responses import HTMLResponse


def install(app: FastAPI) -> None:
    """Serve the page and what it loads; its addresses are relative, for a server of `app` below a path."""
    found = get_swagger_ui_html(
        title=app.title,
        openapi_url="openapi.json",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="docs/favicon.png",
    )
    page = bytes(found.body)
    [script] = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
    script_hash = base64.b64encode(hashlib.sha256(script).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'self' 'sha256-{script_hash}'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'"
    )

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    files = importlib.resources.files("fastapi_offline") / "static"
    app.mount("/docs", StaticFiles(directory=str(files)))
