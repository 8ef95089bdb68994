#!/usr/bin/env python3
"""A server that answers as web servers, the hub and S3 do, and as they do on a bad day.

    server.py DIRECTORY     prints its port, serves until its standard input ends

DIRECTORY/requests.log gets a line a request: METHOD TARGET host=H auth=A range=R status=S.

/files/NAME?plan=A,B,C&id=X   DIRECTORY/files/NAME; request n for id X is answered by word n of the plan, the last
                              word from then on (see Handler.plan).
/hop/STATUS?to=URL            a redirect; without `to` to itself.
/api/..., /O/N/resolve/...    the hub: DIRECTORY/hub/{datasets,models}/O/N/REVISION/..., settings in O/N.json (Handler.hub)
/cdn/...                      where it keeps large files: links that are good for some requests
/s3/BUCKET/KEY                S3: DIRECTORY/s3/BUCKET/KEY, signatures checked; settings in DIRECTORY/s3.json (Handler.s3)
"""

import email.utils
import hashlib
import hmac
import json
import pathlib
import re
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = pathlib.Path(sys.argv[1])
LOCK = threading.Lock()
COUNTS = {}
UPLOADS = {}  # by their numbers: bucket, key, parts
KEYS = {"AKIDEXAMPLE": "secret/key+example"}
SESSION_TOKEN = "session/token=="
LARGE = (".bin", ".gz", ".parquet", ".safetensors")  # kept outside of git by the hub


def count(key):
    with LOCK:
        COUNTS[key] = COUNTS.get(key, 0) + 1
        return COUNTS[key]


def git_hash(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(BaseHTTPRequestHandler):
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
            return self.answer(404)
        content = file.read_bytes()
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(part[1]), int(part[2])) if part else (0, len(content) - 1)
        body = content[first:last + 1]
        given = [("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(content)}")]
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
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.1)
            return None
        if word == "slow":
            time.sleep(float(argument))
        if word == "hold" and first == int(argument):
            time.sleep(30)
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
    # of), page (files a page), token (who may ask at all), gated (who may read files), missing, slow (one file), limit
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
                time.sleep(0.5)
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

    # S3. Settings: trouble (is_bad_day), blind (it knows no conditions), full (no more bytes are taken than these),
    # none (the error where there are no uploads to list), lost (of the first change with this condition no answer comes).

    def signature_flaw(self, url):
        form = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?"
                            r"Signature=([0-9a-f]{64})", self.headers.get("Authorization", ""))
        if not form:
            return "AccessDenied"
        key, day, region, names, signature = form.groups()
        if key not in KEYS:
            return "InvalidAccessKeyId"
        signed = names.split(";")
        if "host" not in signed or "x-amz-content-sha256" not in signed or "x-amz-date" not in signed:
            return "AuthorizationHeaderMalformed"
        if self.headers.get("x-amz-security-token", SESSION_TOKEN) != SESSION_TOKEN:
            return "InvalidToken"
        if "x-amz-security-token" in self.headers and "x-amz-security-token" not in signed:
            return "AccessDenied"
        if hashlib.sha256(self.body).hexdigest() != self.headers["x-amz-content-sha256"]:
            return "XAmzContentSHA256Mismatch"
        pairs = sorted(urllib.parse.quote(name, safe="-_.~") + "=" + urllib.parse.quote(value, safe="-_.~")
                       for name, value in urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        path = urllib.parse.quote(urllib.parse.unquote(url.path), safe="/-_.~")
        request = "\n".join([self.command, path, "&".join(pairs)] +
                            [f"{name}:{' '.join(self.headers[name].split())}" for name in signed] +
                            ["", names, self.headers["x-amz-content-sha256"]])
        scope = f"{day}/{region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope,
                          hashlib.sha256(request.encode()).hexdigest()])
        secret = ("AWS4" + KEYS[key]).encode()
        for part in (day, region, "s3", "aws4_request"):
            secret = hmac.new(secret, part.encode(), "sha256").digest()
        good = hmac.new(secret, text.encode(), "sha256").hexdigest()
        return "" if hmac.compare_digest(good, signature) else "SignatureDoesNotMatch"

    def s3(self, url, path):
        bucket, _, key = path.partition("/")
        if bucket != "public":
            if flaw := self.signature_flaw(url):
                return self.answer(403, f"<?xml version='1.0'?><Error><Code>{flaw}</Code>"
                                        "<Message>see the code</Message></Error>".encode())
        if bucket == "elsewhere":
            return self.answer(301, headers=[("x-amz-bucket-region", "eu-west-3")])
        folder = ROOT / "s3" / bucket
        settings_file = ROOT / "s3.json"
        settings = json.loads(settings_file.read_text()) if settings_file.is_file() else {}
        if self.is_bad_day(settings, "s3"):
            return None
        if self.command in ("PUT", "POST", "DELETE") or "uploads" in self.query:
            return self.s3_change(bucket, key, folder, settings)
        if key:
            file = folder / key
            if not file.is_file():
                return self.answer(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")
            return self.content(file.read_bytes())
        prefix = self.query.get("prefix", "")
        keys = sorted(key for key in (file.relative_to(folder).as_posix() + ("/" if file.is_dir() else "")
                                      for file in folder.rglob("*")) if key.startswith(prefix))
        begin = int(self.query.get("continuation-token", "at 0").split(" ")[1])
        size = min(3, int(self.query.get("max-keys", 1000)))
        body = ["<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>",
                f"<Name>{bucket}</Name><EncodingType>url</EncodingType>"]
        for key in keys[begin:begin + size]:
            content = b"" if key.endswith("/") else (folder / key).read_bytes()
            body.append(f"<Contents><Key>{urllib.parse.quote_plus(key)}</Key><Size>{len(content)}</Size>"
                        f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime())}</LastModified>"
                        f"<ETag>&quot;{hashlib.md5(content).hexdigest()}&quot;</ETag></Contents>")
        more = begin + size < len(keys)
        body.append(f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>")
        if more:
            body.append(f"<NextContinuationToken>at {begin + size}</NextContinuationToken>")
        return self.answer(200, "".join(body + ["</ListBucketResult>"]).encode())


    def refuse(self, status, code):
        return self.answer(status, f"<Error><Code>{code}</Code><Message>see the code</Message></Error>".encode())

    # Under LOCK: of two writers one is first.
    def put_object(self, file, content, settings):
        tag = '"' + hashlib.md5(content).hexdigest() + '"'
        with LOCK:
            there = '"' + hashlib.md5(file.read_bytes()).hexdigest() + '"' if file.is_file() else None
            if not settings.get("blind") and (self.headers.get("If-None-Match") == "*" and there or
                                              "If-Match" in self.headers and self.headers["If-Match"] != there):
                return None
            file.parent.mkdir(parents=True, exist_ok=True)
            aside = ROOT / f"put-{threading.get_ident()}"
            aside.write_bytes(content)
            aside.replace(file)
        return tag

    def s3_change(self, bucket, key, folder, settings):
        upload = UPLOADS.get(self.query.get("uploadId"))
        if self.command == "GET":
            found = "".join(f"<Upload><Key>{k}</Key><UploadId>{number}</UploadId></Upload>"
                            for number, (b, k, _) in UPLOADS.items() if (b, k.startswith(self.query["prefix"])) == (bucket, True))
            if "none" in settings and not found:
                return self.refuse(404, settings["none"])
            return self.answer(200, f"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>{found}"
                                    "</ListMultipartUploadsResult>".encode())
        if "uploads" in self.query:
            number = f"u/{count('upload')}+"
            UPLOADS[number] = (bucket, key, {})
            return self.answer(200, f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId>"
                                    "</InitiateMultipartUploadResult>".encode())
        if "uploadId" in self.query and not upload:
            return self.refuse(404, "NoSuchUpload")
        if self.command == "PUT" and len(self.body) > settings.get("full", len(self.body)):
            return self.refuse(403, "QuotaExceeded")
        if self.command == "PUT" and upload:
            upload[2][int(self.query["partNumber"])] = self.body
            return self.answer(200, headers=[("ETag", '"' + hashlib.md5(self.body).hexdigest() + '"')])
        if self.command == "PUT":
            tag = self.put_object(folder / key, self.body, settings)
            if settings.get("lost", "nothing") in self.headers and count(("lost", settings["lost"])) == 1:
                return self.drop()
            return self.answer(200, headers=[("ETag", tag)]) if tag else self.refuse(412, "PreconditionFailed")
        if self.command == "DELETE" and upload:
            del UPLOADS[self.query["uploadId"]]
            return self.answer(204)
        if self.command == "DELETE":
            with LOCK:
                (folder / key).unlink(missing_ok=True)
                for parent in (folder / key).parents:
                    if parent == folder or not parent.is_dir() or any(parent.iterdir()):
                        break
                    parent.rmdir()
            return self.answer(204)
        named = re.findall(r"<PartNumber>(\d+)</PartNumber><ETag>(.*?)</ETag>", self.body.decode())
        if [tag for _, tag in named] != ['"' + hashlib.md5(upload[2].get(int(n), b"")).hexdigest() + '"' for n, _ in named]:
            return self.answer(200, b"<Error><Code>InvalidPart</Code></Error>")
        self.put_object(folder / key, b"".join(upload[2][int(n)] for n, _ in named), {"blind": True})
        del UPLOADS[self.query["uploadId"]]
        return self.answer(200, b"<CompleteMultipartUploadResult/>")


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()  # until the test ends, in whatever way


main()
