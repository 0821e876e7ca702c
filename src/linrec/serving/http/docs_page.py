"""The API as one plain page made from the OpenAPI description, without scripts."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from jinja2 import Environment
from starlette.responses import HTMLResponse

_PAGE = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>{{ title }} API</title>
  <link rel="stylesheet" href="page/docs.css">
</head>
<body>
<h1>{{ title }} {{ version }}</h1>
<p>{{ about }}</p>
<p>The same for programs: <a href="openapi.json">openapi.json</a> (OpenAPI).</p>
{% for each in operations %}
<section>
  <h2><code>{{ each.method }} {{ each.path }}</code></h2>
  <p><strong>{{ each.summary }}.</strong> {{ each.about }}</p>
  {% if each.parameters %}
  <ul>
    {% for name, about in each.parameters %}
    <li><code>{{ name }}</code> {{ about }}</li>
    {% endfor %}
  </ul>
  {% endif %}
  {% for body in each.bodies %}
  <h3>{{ body.name }}</h3>
  <ul>
    {% for name, about in body.fields %}
    <li><code>{{ name }}</code> {{ about }}</li>
    {% endfor %}
  </ul>
  {% for example in body.examples %}
  <pre>{{ example }}</pre>
  {% endfor %}
  {% endfor %}
  <p class="statuses">Responses: {{ each.statuses }}</p>
</section>
{% endfor %}
</body>
</html>
""")


def mount_docs(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()))


def docs_page(schema: dict[str, Any]) -> str:
    operations = [
        _operation(schema, method.upper(), path, found)
        for path, methods in schema["paths"].items()
        for method, found in methods.items()
    ]
    about = schema["info"]
    return _PAGE.render(
        title=about["title"], version=about["version"], about=about["description"],
        operations=operations,
    )  # fmt: skip


def _operation(
    schema: dict[str, Any], method: str, path: str, found: dict[str, Any]
) -> dict[str, Any]:
    parameters = [(each["name"], _kind(each["schema"])) for each in found.get("parameters", ())]
    content = found.get("requestBody", {}).get("content", {}).get("application/json", {})
    names = _references(content)
    return {
        "method": method, "path": path, "summary": found.get("summary", ""),
        "about": found.get("description", ""), "parameters": parameters,
        "bodies": [_body(name, schema["components"]["schemas"][name]) for name in names],
        "statuses": ", ".join(found["responses"]),
    }  # fmt: skip


def _references(content: Any) -> list[str]:
    """Names of the schemas that a part of the description refers to."""
    if isinstance(content, dict):
        own = [content["$ref"].rpartition("/")[2]] if "$ref" in content else []
        return own + [name for key in ("schema", "oneOf", "anyOf", "items")
                      for name in _references(content.get(key))]  # fmt: skip
    return [name for each in content for name in _references(each)] if content else []


def _body(name: str, found: dict[str, Any]) -> dict[str, Any]:
    needed = found.get("required", ())
    fields = [
        (field, f"{_kind(about)}{', required' if field in needed else ''}"
         f"{': ' + about['description'] if 'description' in about else ''}")
        for field, about in found.get("properties", {}).items()
    ]  # fmt: skip
    examples = [json.dumps(example, indent=2) for example in found.get("examples", ())]
    return {"name": name, "fields": fields, "examples": examples}


def _kind(about: dict[str, Any]) -> str:
    if "$ref" in about:
        return str(about["$ref"].rpartition("/")[2])
    if "anyOf" in about:
        kinds = dict.fromkeys(_kind(each) for each in about["anyOf"])
        return " or ".join(kinds)
    if about.get("type") == "array":
        return f"list of {_kind(about.get('items', {}))}"
    return str(about.get("type", "any"))
