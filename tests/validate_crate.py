"""Validate an RO-Crate without a network: python validate_crate.py CRATE PROFILE SEVERITY.

It needs what envs/requirements/validators.txt lists. The context of RO-Crate 1.1 is the one that rocrate 0.13 ships;
any other address is refused.
"""

import io
import sys
from importlib.resources import files

import requests
from requests.adapters import HTTPAdapter
from rocrate_validator import models, services
from urllib3 import HTTPResponse

CONTEXT = "https://w3id.org/ro/crate/1.1/context"


class Shipped(HTTPAdapter):
    """Answers for the context's address alone."""

    def send(self, request, **_):
        if request.url != CONTEXT:
            raise requests.ConnectionError(f"no network here: {request.url}")
        body = (files("rocrate") / "data" / "ro-crate.jsonld").read_bytes()
        headers = {"Content-Type": "application/ld+json", "Content-Length": str(len(body))}
        raw = HTTPResponse(io.BytesIO(body), headers, 200, preload_content=False, request_url=CONTEXT)
        return self.build_response(request, raw)


def main() -> int:
    """Print every violation; 0 if there is none."""
    requests.Session.get_adapter = lambda self, url: Shipped()
    crate, profile, severity = sys.argv[1:]
    settings = services.ValidationSettings(
        rocrate_uri=crate,
        profile_identifier=profile,
        requirement_severity=models.Severity[severity],
        abort_on_first=False,
    )
    result = services.validate(settings)
    for issue in result.get_issues():
        message = " ".join(str(issue.message).split())
        print(issue.severity.name, issue.check.identifier, message[:300], issue.violatingEntity)
    print("passed" if result.passed() else "failed")
    return 0 if result.passed() else 1


if __name__ == "__main__":
    sys.exit(main())
