"""A browser, which unlike a caller of the API has cookies, forms with tokens and an origin."""

import re
from dataclasses import dataclass

import httpx
from fastapi.testclient import TestClient

HERE = "http://testserver"


def hidden(page: str) -> dict[str, str]:
    """Return the hidden fields of a page's form."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))


def inline(page: str) -> list[str]:
    """Return a page's inline scripts and styles, which browsers would block, and its references to other hosts."""
    found = re.finditer(r'<style|\sstyle=|<script>|\son[a-z]+=|(src|href|action)="(https?:)?//', page)
    return [one[0] for one in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Browser:
    """A browser at the gateway, with the key for a later login."""

    client: TestClient
    key: str

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.client.get(path, headers=headers, follow_redirects=False)

    def post(self, path: str, *, origin: str | None = HERE, **fields: str | list[str]) -> httpx.Response:
        """Send a form as our pages do, from our origin and with the session's token, unless the caller gives others."""
        headers = {} if origin is None else {"Origin": origin}
        if "csrf" not in fields:
            fields["csrf"] = self.token()
        return self.client.post(path, data=fields, headers=headers, follow_redirects=False)

    def send(self, path: str, *, csrf: str | None = None, **files: tuple[str, bytes]) -> httpx.Response:
        """Send a form with files."""
        data = {"csrf": self.token() if csrf is None else csrf}
        return self.client.post(path, data=data, files=files, headers={"Origin": HERE}, follow_redirects=False)

    def token(self) -> str:
        """Return the form token of the browser's session, or an empty string if there is none."""
        page = self.get("/admin/nowhere").text
        found = re.search(r'name="form-token" content="([0-9a-f]{64})"', page)
        return found[1] if found else ""

    def log_in_as(self, email: str, password: str, *, code: str | None = None, **more: str) -> httpx.Response:
        """Take the first step of a login and, if a `code` is given, the second step with the form that the first step
        returned."""
        [token] = re.findall(r'name="csrf" value="([0-9a-f]{64})"', self.get("/admin/login").text)
        answer = self.post("/admin/login", csrf=token, next="/admin", email=email, password=password)
        if code is None:
            return answer
        return self.post("/admin/login/code", code=code, **(hidden(answer.text) | more))

    def log_in(self, *, key: str | None = None, after: str = "/admin/login") -> httpx.Response:
        page = self.get(after).text
        [token] = re.findall(r'name="csrf" value="([0-9a-f]{64})"', page)
        [onward] = re.findall(r'name="next" value="([^"]*)"', page)
        return self.post("/admin/login", csrf=token, next=onward, key=self.key if key is None else key)
