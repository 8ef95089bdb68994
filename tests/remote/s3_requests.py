"""Requests of S3 to server.py, over DIRECTORY/s3/BUCKET/KEY.

Settings in DIRECTORY/s3.json: trouble (Handler.is_bad_day), blind (it knows no conditions), full (no more bytes are taken
than these), none (the error where there are no uploads to list), lost (of the first change with this condition no answer
comes), shut (what is in the names of objects that are not to be had), unlisted (the object whose presence ends lists of KEY/).
"""

import hashlib
import hmac
import json
import re
import threading
import time
import urllib.parse

from server_state import LOCK, ROOT, count

UPLOADS = {}  # by their numbers: bucket, key, parts
KEYS = {"AKIDEXAMPLE": "secret/key+example"}
SESSION_TOKEN = "session/token=="


class S3Requests:
    """Of a handler that has answer(), content(), note(), drop(), is_bad_day(), and has read `query` and `body`."""

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
        if bucket == "elsewhere":
            return self.answer(301, headers=[("x-amz-bucket-region", "eu-west-3")])
        if bucket != "public":
            if flaw := self.signature_flaw(url):
                return self.answer(403, f"<?xml version='1.0'?><Error><Code>{flaw}</Code>"
                                        "<Message>see the code</Message></Error>".encode())
        folder = ROOT / "s3" / bucket
        settings_file = ROOT / "s3.json"
        settings = json.loads(settings_file.read_text()) if settings_file.is_file() else {}
        if self.is_bad_day(settings, "s3"):
            return None
        if self.command in ("PUT", "POST", "DELETE") or "uploads" in self.query:
            return self.s3_change(bucket, key, folder, settings)
        if key:
            if settings.get("shut", "\n") in key:
                return self.refuse(503, "SlowDown")
            file = folder / key
            if not file.is_file():
                return self.answer(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")
            return self.content(file.read_bytes())
        prefix = self.query.get("prefix", "")
        if prefix.count("/") == 1 and (folder / settings.get("unlisted", "/none")).is_file():
            return self.refuse(503, "SlowDown")
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
        if upload and upload[:2] != (bucket, key):
            upload = None
        if self.command == "GET":
            # Two at a time, and in either order of what is said of one.
            after = (self.query.get("key-marker", ""), self.query.get("upload-id-marker", ""))
            found = sorted((k, number) for number, (b, k, _) in UPLOADS.items()
                           if b == bucket and k.startswith(self.query["prefix"]) and (k, number) > after)
            if "none" in settings and not found:
                return self.refuse(404, settings["none"])
            said = [f"<Upload><UploadId>{number}</UploadId><Key>{k}</Key></Upload>" if int(number[2:-1]) % 2 else
                    f"<Upload><Key>{k}</Key><UploadId>{number}</UploadId></Upload>" for k, number in found[:2]]
            more = "<IsTruncated>false</IsTruncated>"
            if len(found) > 2:
                more = (f"<NextKeyMarker>{found[1][0]}</NextKeyMarker><NextUploadIdMarker>{found[1][1]}</NextUploadIdMarker>"
                        "<IsTruncated>true</IsTruncated>")
            return self.answer(200, f"<ListMultipartUploadsResult>{more}{''.join(said)}</ListMultipartUploadsResult>".encode())
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
