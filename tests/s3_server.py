"""An S3 server as a process, `python tests/s3_server.py ADDRESS PORT FOLDER`: what a client of the protocol needs.

It checks signatures (version 4), knows one key, and keeps buckets as folders below FOLDER, so that a test can damage
what lies there, and another server can go on with it. `FOLDER/.slow` holds seconds that every write takes, and
`FOLDER/.waiting` the name of the object that is written so slowly.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import shutil
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

KEY, SECRET = "reef-test-key", "reef-test-secret"
UPLOADS = ".uploads"  # beside the buckets: parts that no object is made of yet


def signature(method: str, target: str, headers: dict[str, str], signed: str, scope: str) -> str:
    """The signature of a request, from AWS' description of version 4."""
    parts = urlsplit(target)
    pairs = sorted((quote(k, "-_.~"), quote(v, "-_.~")) for k, v in parse_qsl(parts.query, keep_blank_values=True))
    lines = [method, parts.path, "&".join(f"{key}={value}" for key, value in pairs)]
    lines += [f"{name}:{' '.join(headers.get(name, '').split())}" for name in signed.split(";")]
    lines += ["", signed, headers["x-amz-content-sha256"]]
    hashed = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashed])
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest()


class Handler(BaseHTTPRequestHandler):
    """One request; buckets are addressed by path."""

    protocol_version = "HTTP/1.1"
    root: Path

    def handle_request(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        bucket, _, self.key = unquote(parts.path).lstrip("/").partition("/")
        self.bucket, self.file = self.root / bucket, self.root / bucket / self.key
        if refusal := self.refusal():
            self.answer_error(403, *refusal)
        elif not self.bucket.is_dir():
            self.answer_error(404, "NoSuchBucket", "The specified bucket does not exist")
        else:
            slow = self.root / ".slow"
            if self.command in ("PUT", "POST") and slow.exists() and (seconds := float(slow.read_text())):
                (self.root / ".waiting").write_text(self.key)
                time.sleep(seconds)
            getattr(self, f"on_{self.command.lower()}")()

    do_GET = do_PUT = do_POST = do_DELETE = handle_request  # noqa: N815 - the names of http.server

    def refusal(self) -> tuple[str, str] | None:
        form = r"AWS4-HMAC-SHA256 Credential=([^/]+)/([^,]+), *SignedHeaders=([^,]+), *Signature=(\w+)"
        found = re.fullmatch(form, self.headers.get("Authorization", ""))
        if not found:
            return "AccessDenied", "Access Denied"
        key, scope, signed, given = found.groups()
        if key != KEY:
            return "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."
        headers = {name.lower(): value for name, value in self.headers.items()}
        if given != signature(self.command, self.path, headers, signed, scope):
            return "SignatureDoesNotMatch", "The request signature we calculated does not match the one you provided."
        digest = headers["x-amz-content-sha256"]
        if digest != "UNSIGNED-PAYLOAD" and digest != hashlib.sha256(self.body).hexdigest():
            return "XAmzContentSHA256Mismatch", "The body does not have the hash that was signed."
        return None

    def on_put(self) -> None:
        self.write(self.root / UPLOADS / self.query["uploadId"] / self.query["partNumber"] if self.query else self.file)

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{time.monotonic_ns()}.incoming")
        temporary.write_bytes(self.body)
        temporary.replace(file)
        self.answer(200, ETag=self.tag(self.body))

    def on_get(self) -> None:
        if "list-type" in self.query:
            self.list()
        elif not self.file.is_file():
            self.answer_error(404, "NoSuchKey", "The specified key does not exist.")
        else:
            self.send_object(self.file.read_bytes())

    def send_object(self, content: bytes) -> None:
        more = {"ETag": self.tag(content), "Last-Modified": self.date_time_string(self.file.stat().st_mtime)}
        if found := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            first, last = int(found[1]), min(int(found[2]), len(content) - 1)
            more["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            self.answer(206, content[first : last + 1], **more)
        else:
            self.answer(200, content, **more)

    def list(self) -> None:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        inside, folders = [], set()
        for file in sorted(self.bucket.rglob("*")):
            key = file.relative_to(self.bucket).as_posix()
            if not file.is_file() or not key.startswith(prefix) or file.name.endswith(".incoming"):
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                inside.append((key, file))
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{file.stat().st_size}</Size>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;0&quot;</ETag></Contents>"
            for key, file in inside
        )
        entries += "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in sorted(folders))
        self.answer_xml(f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>")

    def on_post(self) -> None:
        if "delete" in self.query:
            keys = re.findall(r"<Key>(.*?)</Key>", self.body.decode())
            for key in keys:
                (self.bucket / key).unlink(missing_ok=True)
            gone = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            self.answer_xml(f"<DeleteResult>{gone}</DeleteResult>")
        elif "uploads" in self.query:
            upload = f"u{time.monotonic_ns()}"
            (self.root / UPLOADS / upload).mkdir(parents=True)
            self.answer_xml(
                f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            )
        else:
            parts = self.root / UPLOADS / self.query["uploadId"]
            numbers = re.findall(r"<PartNumber>(\d+)</PartNumber>", self.body.decode())
            whole = b"".join((parts / number).read_bytes() for number in numbers)
            shutil.rmtree(parts)
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_bytes(whole)
            self.answer_xml('<CompleteMultipartUploadResult><ETag>"1"</ETag></CompleteMultipartUploadResult>')

    def on_delete(self) -> None:
        self.file.unlink(missing_ok=True)
        self.answer(204)

    @staticmethod
    def tag(content: bytes) -> str:
        return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'

    def answer_error(self, status: int, code: str, message: str) -> None:
        self.answer_xml(f"<Error><Code>{code}</Code><Message>{message}</Message></Error>", status)

    def answer_xml(self, content: str, status: int = 200) -> None:
        self.answer(status, f'<?xml version="1.0" encoding="UTF-8"?>{content}'.encode())

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        print(format % args, flush=True)


class S3:
    """The server as a process: a bucket that can be looked into and damaged, and a server that can go and come back."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        self.folder, self.bucket, self.address = folder, folder / "bucket", address
        self.bucket.mkdir(parents=True)
        with socket.create_server((address, 0)) as listener:
            self.port = int(listener.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to know."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{self.address}:{self.port}",
        }

    def start(self) -> None:
        command = [sys.executable, __file__, self.address, str(self.port), str(self.folder)]
        with (self.folder / ".log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection((self.address, self.port), 1):
                return
            assert self.process.poll() is None and time.monotonic() < deadline, (self.folder / ".log").read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)

    def slow(self, seconds: float) -> None:
        """Let every write take so long; 0 ends it."""
        (self.folder / ".slow").write_text(str(seconds))

    def files(self) -> list[str]:
        """What is in the bucket."""
        return sorted(file.relative_to(self.bucket).as_posix() for file in self.bucket.rglob("*") if file.is_file())


def main() -> None:
    address, port, folder = sys.argv[1:]
    handler = type("Handler", (Handler,), {"root": Path(folder)})
    ThreadingHTTPServer((address, int(port)), handler).serve_forever()


if __name__ == "__main__":
    main()
