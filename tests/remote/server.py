#!/usr/bin/env python3
"""A server that answers as web servers, the hub and S3 do, and as they do on a bad day.

    server.py DIRECTORY     prints its port, serves until its standard input ends

DIRECTORY/requests.log gets a line a request: METHOD TARGET host=H auth=A range=R status=S.

/files/NAME?plan=A,B,C&id=X   DIRECTORY/files/NAME; request n for id X is answered by word n of the plan, the last
                              word from then on (see Handler.plan). Where there is none: status 404, or none=STATUS.
/hop/STATUS?to=URL            a redirect; without `to` to itself.
/api/..., /O/N/resolve/...    the hub: DIRECTORY/hub/{datasets,models}/O/N/REVISION/..., settings in O/N.json (Handler.hub)
/cdn/...                      where it keeps large files: links that are good for some requests
/s3/BUCKET/KEY                S3: DIRECTORY/s3/BUCKET/KEY, signatures checked; settings in DIRECTORY/s3.json (s3_requests.py)
"""

import email.utils
import hashlib
import json
import re
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from s3_requests import S3Requests
from server_state import LOCK, ROOT, count

LARGE = (".bin", ".gz", ".parquet", ".safetensors")  # kept outside of git by the hub


def git_hash(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(S3Requests, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def note(self, status):
        line = (f"{self.command} {self.path} host={self.headers.get('Host', '').split(':')[0]} "
                f"auth={self.headers.get('Authorization', '-')} range={self.headers.get('Range', '-')} status={status}\n")
        with LOCK, open(ROOT / "requests.log", "a", encoding="utf-8") as log:
            log.write(line)

    def answer(self, status, body=b"", headers=(), length=None):
        self.note(status)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self):
        self.do_GET()

    def do_POST(self):
        self.do_GET()

    def do_DELETE(self):
        self.do_GET()

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        path = urllib.parse.unquote(url.path)
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            if path.startswith("/files/"):
                self.plan(ROOT / "files" / path[7:])
            elif path.startswith("/hop/"):
                self.answer(int(path[5:]), headers=[("Location", self.query.get("to", self.path))])
            elif path.startswith("/s3/"):
                self.s3(url, path[4:])
            elif path.startswith("/cdn/"):
                self.cdn(path[5:])
            else:
                self.hub(path, url)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    # A file, or a part of it.

    def content(self, content, headers=(), etag=None):
        headers = list(headers) + [("ETag", etag or '"' + hashlib.md5(content).hexdigest() + '"')]
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not part:
            return self.answer(200, content, headers)
        first, last = int(part[1]), min(int(part[2]), len(content) - 1)
        if first >= len(content):
            said = [] if self.path.startswith("/s3/") else [("Content-Range", f"bytes */{len(content)}")]
            return self.answer(416, headers=headers + said)
        headers.append(("Content-Range", f"bytes {first}-{last}/{len(content)}"))
        return self.answer(206, content[first:last + 1], headers)

    def plan(self, file):
        words = self.query.get("plan", "ok").split(",")
        number = count(("plan", self.query.get("id", ""), file))
        word, _, argument = words[min(number, len(words)) - 1].partition(":")
        if not file.is_file():
            return self.answer(int(self.query.get("none", 404)))
        content = file.read_bytes()
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(part[1]), int(part[2])) if part else (0, len(content) - 1)
        body = content[first:last + 1]
        given = [("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(content)}")]
        if argument == "endless":  # an error whose text never ends
            self.send_response(int(word))
            self.end_headers()
            self.close_connection = True
            try:
                while True:
                    self.wfile.write(b"no" * 4096)
            except OSError:
                return None
        if word.isdigit():
            headers = []
            if argument == "date":
                headers = [("Retry-After", email.utils.formatdate(time.time() + 2, usegmt=True))]
            elif argument.startswith("t"):
                headers = [("RateLimit", f'"resolvers";r=0;t={argument[1:]}')]
            elif argument:
                headers = [("Retry-After", argument)]
            return self.answer(int(word), b"no", headers)
        if word == "drop":
            self.note("drop")
            self.close_connection = True
            return self.connection.close()
        if word == "truncate":  # less than Content-Length says
            self.answer(206, body[:len(body) // 2], given, length=len(body))
            self.close_connection = True
            return None
        if word == "short":  # a Content-Length that is wrong, beside a right Content-Range
            return self.answer(206, body[:len(body) // 2], given)
        if word == "long":
            return self.answer(206, body + b"more", given)
        if word == "shifted":
            return self.answer(206, body, [("Content-Range",
                                            f"bytes {first + 1}-{first + len(body)}/{len(content)}")])
        if word == "norange":
            return self.answer(206, body)
        if word == "part200":
            return self.answer(200, body, given)
        if word == "trickle":
            self.note("trickle")
            self.send_response(206)
            self.send_header(*given[0])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.close_connection = bool(argument)  # cut off after so many bytes
            for byte in body[:int(argument or len(body))]:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.1)
            return None
        if word == "slow":
            time.sleep(float(argument))
        if word == "hold" and first == int(argument):
            time.sleep(100)
        if word == "whole":  # a server that does not know Range
            return self.answer(200, content)
        if word == "chunked":  # and none that tells its length
            self.note(200)
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            end = len(content) if argument != "cut" else len(content) // 2
            for begin in range(0, end, 1000):
                piece = content[begin:min(begin + 1000, end)]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if argument != "cut":
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = argument == "cut"
            return None
        if word == "other":
            return self.content(content + b"!")
        if word == "othertag":
            return self.content(content, etag='"another"')
        return self.content(content)

    def drop(self):
        self.note("drop")
        self.close_connection = True
        self.connection.close()

    # A server that fails now and then: every so many requests one is answered in each of these ways in turn.

    def is_bad_day(self, settings, key):
        every = settings.get("trouble")
        number = count(("trouble", key)) if every else 1
        if not every or number % every:
            return False
        kind = number // every % 5
        if kind == 0:
            self.answer(429, b"no", [("Retry-After", "1")])
        elif kind == 1:
            self.answer(503, b"no")
        elif kind == 2:
            self.drop()
        elif kind == 3:
            self.note("cut")  # more is announced than comes
            self.send_response(206 if "Range" in self.headers else 200)
            self.send_header("Content-Range", self.headers.get("Range", "").replace("=", " ") + "/*")
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(b"x" * 100)
            self.close_connection = True
        else:
            time.sleep(0.5)
            return False
        return True

    # The hub. Of a repository O/N.json says: revisions (directories below O/N), moved_on (what a branch is another name
    # of), page (files a page), token (who may ask at all), gated (who may read files), missing, slow (one file, slow_seconds), limit
    # (requests that are refused first), uses (of a link), trouble (is_bad_day), moved, next_host, wrong_hash.

    def hub(self, path, url):
        api = re.fullmatch(r"/api/(datasets|models)/(.+?)/(revision|tree)/([^/]+)", urllib.parse.unquote(
            url.path.replace("%2F", "\0")).replace("\0", "%2F"))
        resolve = re.fullmatch(r"(?:/(datasets))?/([^/]+(?:/[^/]+)?)/resolve/([^/]+)/(.+)", path)
        if not api and not resolve:
            return self.answer(404)
        kind, name = (api[1], api[2]) if api else (resolve[1] or "models", resolve[2])
        settings_file = ROOT / "hub" / kind / (name + ".json")
        settings = json.loads(settings_file.read_text()) if settings_file.is_file() else None
        if settings is None:
            return self.answer(401, headers=[("X-Error-Code", "RepoNotFound"),
                                             ("X-Error-Message", "Repository not found")])
        if "moved" in settings:
            return self.answer(307, headers=[("Location", self.path.replace(name, settings["moved"]))])
        if settings.get("token") and self.headers.get("Authorization") != f"Bearer {settings['token']}":
            return self.answer(401, headers=[("X-Error-Message", "Invalid credentials")])
        if settings.get("limit") and count(("limit", name)) <= settings["limit"]:
            return self.answer(429, headers=[("RateLimit", '"api";r=0;t=1')])
        if self.is_bad_day(settings, name):
            return None
        revisions = {hashlib.sha1(revision.encode()).hexdigest(): revision for revision in settings["revisions"]}
        if api and api[3] == "revision":
            revision = urllib.parse.unquote(api[4])
            commit = hashlib.sha1(revision.encode()).hexdigest()
            if revision in revisions:
                commit = revision
            elif revision in settings.get("moved_on", {}):
                commit = hashlib.sha1(settings["moved_on"][revision].encode()).hexdigest()
            elif revision not in settings["revisions"]:
                return self.answer(404, headers=[("X-Error-Code", "RevisionNotFound"),
                                                 ("X-Error-Message", "Invalid rev id")])
            return self.answer(200, json.dumps({"id": name, "sha": commit, "siblings": []}).encode())
        commit = api[4] if api else resolve[3]
        if commit not in revisions:
            return self.answer(404, headers=[("X-Error-Message", "Invalid rev id")])
        folder = ROOT / "hub" / kind / name / revisions[commit].replace("/", "_")
        if resolve:
            if settings.get("gated") and self.headers.get("Authorization") != f"Bearer {settings['gated']}":
                return self.answer(403, headers=[("X-Error-Code", "GatedRepo"),
                                                 ("X-Error-Message", "Access to this model is restricted")])
            if resolve[4] == settings.get("slow"):
                time.sleep(settings.get("slow_seconds", 0.5))
            file = folder / resolve[4]
            if resolve[4] == settings.get("missing"):
                return self.answer(404, headers=[("X-Error-Message", "Entry not found")])
            if not file.is_file():
                return self.answer(404, headers=[("X-Error-Message", "Entry not found")])
            content = file.read_bytes()
            if file.suffix not in LARGE:
                return self.content(content, etag=f'"{git_hash(content)}"')
            ticket = count("ticket")
            port = self.server.server_address[1]
            return self.answer(302, headers=[
                ("X-Repo-Commit", commit), ("X-Linked-Size", str(len(content))),
                ("X-Linked-ETag", f'"{hashlib.sha256(content).hexdigest()}"'),
                ("Location", f"http://localhost:{port}/cdn/{file.relative_to(ROOT)}?secret={ticket}"
                             f"&uses={settings.get('uses', 1000)}&trouble={settings.get('trouble', 0)}")])
        files = sorted(file for file in folder.rglob("*"))
        begin, size = int(self.query.get("cursor", "0")), settings.get("page", 1000)
        entries = []
        for file in files[begin:begin + size]:
            entry = {"type": "directory" if file.is_dir() else "file", "oid": "0" * 40, "size": 0,
                     "path": file.relative_to(folder).as_posix()}
            if file.is_file():
                content = file.read_bytes()
                entry |= {"size": len(content), "oid": git_hash(content)}
                if file.suffix in LARGE:
                    entry["lfs"] = {"oid": settings.get("wrong_hash") or hashlib.sha256(content).hexdigest(),
                                    "size": len(content), "pointerSize": 134}
            entries.append(entry)
        headers = []
        if begin + size < len(files):
            host = settings.get("next_host") or f"{self.headers['Host']}"
            headers = [("Link", f'<http://{host}{url.path}?recursive=true&expand=false&cursor={begin + size}>; '
                                'rel="next"')]
        return self.answer(200, json.dumps(entries).encode(), headers)

    def cdn(self, path):
        if self.is_bad_day({"trouble": int(self.query.get("trouble", 0))}, "cdn"):
            return None
        if count(("secret", self.query["secret"])) > int(self.query["uses"]):
            return self.answer(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
        return self.content((ROOT / path).read_bytes())


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()  # until the test ends, in whatever way


main()
