"""Checks requests and answers of clients against a server's OpenAPI document."""

import json
import re
import urllib.request

import jsonschema


class Document:
    """The document of a server. Its hooks are for httpx."""

    def __init__(self, url, key):
        request = urllib.request.Request(f"{url}/openapi.json", headers={"authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request) as response:
            self.document = json.load(response)
        pattern = lambda path: re.compile(re.sub(r"\{\w+\}", "[^?]+", path))
        # Names may contain slashes: the path with the most parts, and the fewest parameters, is meant.
        paths = sorted(self.document["paths"].items(), key=lambda entry: (-entry[0].count("/"), entry[0].count("{")))
        self.paths = [(pattern(path), operations) for path, operations in paths]
        self.checked = 0

    def hooks(self):
        return {"response": [self.check]}

    def operation(self, request):
        for pattern, operations in self.paths:
            if pattern.fullmatch(request.url.path):
                return operations[request.method.lower()]
        raise AssertionError(f"{request.url} is not documented")

    def errors(self, schema, value):
        schema = {**schema, "components": self.document["components"]}
        return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(value)]

    def check(self, response):
        """Checks an answer, and the request if it was accepted."""
        response.read()
        request = response.request
        operation, name = self.operation(request), f"{request.method} {request.url.path}"
        if response.status_code < 400 and request.content:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            errors = self.errors(schema, json.loads(request.content))
            assert not errors, (name, errors, request.content)
        documented = operation["responses"].get(str(response.status_code))
        assert documented, (name, response.status_code)
        media_type = response.headers["content-type"].split(";")[0]
        content = documented["content"][media_type]
        if media_type == "application/json":
            errors = self.errors(content["schema"], response.json())
            assert not errors, (name, errors, response.text)
        elif media_type == "application/x-ndjson":
            for line in response.text.splitlines():
                errors = self.errors(content["itemSchema"], json.loads(line))
                assert not errors, (name, errors, line)
        elif media_type == "text/event-stream":
            for line in response.text.splitlines():
                if line.startswith("data: "):
                    self.check_event(name, content["itemSchema"], line.removeprefix("data: "))
        self.checked += 1

    def check_event(self, name, schema, data):
        errors = []
        for expected in self.kinds(schema):
            if "contentSchema" not in expected:
                found = [] if data == expected["const"] else [f"{data} is not {expected['const']}"]
            elif data.startswith("{"):
                found = self.errors(expected["contentSchema"], json.loads(data))
            else:
                found = [f"{data} is not an object"]
            if not found:
                return
            errors.append(found)
        raise AssertionError((name, errors, data))

    def kinds(self, schema):
        """The schemas of the data of events."""
        while "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        if "anyOf" in schema:
            return [kind for one in schema["anyOf"] for kind in self.kinds(one)]
        return [schema["properties"]["data"]]
