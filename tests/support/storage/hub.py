"""A server that speaks as Hugging Face does, and the host to which it sends on: python3 hub.py FOLDER WORK

FOLDER/datasets/OWNER/NAME/COMMIT/PATH is a file, FOLDER/models/… one of a model; WORK/main holds the commit that "main"
is. A repository whose name begins with "private" wants the token TOKEN, "gated" one that is refused. Files are sent on to
another host (localhost, where this one is 127.0.0.1) by links, each of which holds for one request, of "expiring" for
none at first; "main" of "moving" is another commit each time. That host refuses whoever brings a token. Listings have PAGE files a page. It also gives what needs
headers: /with/NAME wants "X-Api-Key: KEY", of the name SECOND another one; /away/NAME the first, and sends on to the other host, which refuses that
header; /link/NAME?…, whose X-Amz-Date and X-Amz-Expires, or se, say until when it holds.
"""

import datetime
import json
import os
import urllib.parse

from serve import FOLDER, WORK, Handler, Refusal, keys_of, lock, serve

PAGE, TOKEN, KEY = 3, "hf_secretToken", "key of the api"
SECOND, OTHER_KEY = "second.npy", "second key of the api"
links, counted = set(), {}


class Hub(Handler):
    form = "json"

    def commit_of(self, repository, revision):
        if revision == "refs/pr/7":
            return "fedcba98" * 5
        with open(os.path.join(WORK, "main")) as file:
            commit = file.read().strip()
        if revision == "refs/convert/parquet":
            return commit
        if repository.endswith("/moving") and revision == "main":
            with lock:
                counted["moving"] = counted.get("moving", 0) + 1
            return commit if counted["moving"] % 2 == 1 else "fedcba98" * 5
        if revision not in ("main", commit) and not os.path.isdir(os.path.join(FOLDER, repository, revision)):
            raise Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit if revision == "main" else revision

    def check(self, repository):
        words, name = self.headers.get("Authorization"), repository.rsplit("/", 1)[1]
        if words not in (None, "Bearer " + TOKEN):
            raise Refusal(401, "", "Invalid username or password.")
        if not os.path.isdir(os.path.join(FOLDER, repository)) or name.startswith("private") and words is None:
            raise Refusal(404 if words else 401, "RepoNotFound", "Repository not found")
        if name.startswith("gated"):
            raise Refusal(403, "GatedRepo", "Access to this repository is restricted.")

    def other_host(self, path):
        return f"http://localhost:{self.server.server_address[1]}{path}"

    def get(self):
        path, _, words = self.path.partition("?")
        query, parts = dict(urllib.parse.parse_qsl(words)), path[1:].split("/")
        if parts[0] == "cdn":
            return self.cdn(path, query)
        if parts[0] in ("with", "away", "link"):
            return self.plain(parts[0], urllib.parse.unquote("/".join(parts[1:])), query)
        if parts[0] == "api":
            return self.api(parts[1:], query)
        parts = parts if parts[0] == "datasets" else ["models", *parts]
        repository = "/".join(parts[:3])
        self.check(repository)
        if parts[3] != "resolve":
            raise Refusal(404, "", "Sorry, we can't find the page you are looking for.")
        commit = self.commit_of(repository, urllib.parse.unquote(parts[4]))
        name = urllib.parse.unquote("/".join(parts[5:]))
        if not os.path.isfile(os.path.join(FOLDER, repository, commit, name)):
            raise Refusal(404, "EntryNotFound", "Entry not found")
        with lock:
            number = counted["links"] = counted.get("links", 0) + 1
            if not (parts[2] == "expiring" and number % 2 == 1):
                links.add(str(number))
        place = urllib.parse.quote(f"/cdn/{repository}/{commit}/{name}")
        return self.answer(302, b"", [("Location", self.other_host(f"{place}?Signature=cdn-secret&n={number}"))])

    def cdn(self, path, query):
        if self.headers.get("Authorization") or self.headers.get("X-Api-Key"):
            raise Refusal(400, "LeakedSecret", "A secret came to another host.")
        with lock:
            if query["n"] != "any" and query["n"] not in links:
                raise Refusal(403, "AccessDenied", "Request has expired")
            links.discard(query["n"])
        return self.file(os.path.join(FOLDER, urllib.parse.unquote(path[len("/cdn/") :])))

    def api(self, parts, query):
        repository = "/".join(parts[:3])
        self.check(repository)
        commit = self.commit_of(repository, urllib.parse.unquote(parts[4]))
        if parts[3] == "revision":
            return self.json({"_id": "1", "id": repository, "author": {"sha": "none"}, "sha": commit, "siblings": []})
        root, folder = os.path.join(FOLDER, repository, commit), urllib.parse.unquote("/".join(parts[5:]))
        if not os.path.isdir(os.path.join(root, folder)):
            raise Refusal(404, "EntryNotFound", f"{folder} does not exist")
        prefix = folder + "/" if folder else ""
        files = [k for k in keys_of(root) if k.startswith(prefix)]
        entries = [{"type": "file", "oid": "0", "size": os.path.getsize(os.path.join(root, k)), "path": k} for k in files]
        if query.get("recursive") != "true":
            deeper = {prefix + k[len(prefix) :].split("/")[0] for k in files if "/" in k[len(prefix) :]}
            entries = [e for e in entries if "/" not in e["path"][len(prefix) :]]
            entries = [{"type": "directory", "oid": "0", "size": 0, "path": d} for d in sorted(deeper)] + entries
        first = int(query.get("cursor", "0"))
        more = first + PAGE < len(entries)
        url = self.other_host(f"{self.path.partition('?')[0]}?recursive={query.get('recursive')}&cursor={first + PAGE:01500d}")
        body = json.dumps(entries[first : first + PAGE]).encode()
        return self.answer(200, body[: len(body) // 2] if parts[2] == "cut" else body,
                           [("Link", f'<{url}>; rel="next"')] if more else [])

    def plain(self, kind, name, query):
        if kind == "link":
            now = datetime.datetime.now(datetime.timezone.utc)
            ends = query.get("se", "")
            if "X-Amz-Date" in query:
                begin = datetime.datetime.strptime(query["X-Amz-Date"] + "+0000", "%Y%m%dT%H%M%SZ%z")
                ends = (begin + datetime.timedelta(seconds=int(query["X-Amz-Expires"]))).strftime("%Y-%m-%dT%H:%M:%SZ")
            if ends < now.strftime("%Y-%m-%dT%H:%M:%SZ"):
                raise Refusal(403, "AccessDenied", "Request has expired")
        elif self.headers.get("X-Api-Key") != (OTHER_KEY if name == SECOND else KEY):
            raise Refusal(401, "", "Who are you?")
        if kind == "away":
            return self.answer(302, b"", [("Location", self.other_host(f"/cdn/{urllib.parse.quote(name)}?n=any"))])
        return self.file(os.path.join(FOLDER, name))


serve(Hub)
