"""A server of Google Cloud Storage for tests: the calls of the XML API that archives need.

As https://cloud.google.com/storage/docs/xml-api documents them: list (version 2, in pages), get
with a range, put and copy with `x-goog-if-generation-match`, delete, and uploads in parts. One bucket,
in memory; nothing is asked about who calls. Prints its port, then a line for each request.
"""

import hashlib
import re
import sys
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

BUCKET = "bucket"
# As the server has it: every part but the last one is at least as long.
LEAST_PART_BYTES = 5 << 20
# Few, so that lists have several pages.
PAGE = 2

lock = threading.Lock()
objects = {}  # name -> (generation, bytes)
uploads = {}  # id -> (name, {number: bytes})
generations = iter(range(1, 1 << 62))


class Refused(Exception):
    def __init__(self, status, code):
        super().__init__(code)
        self.status, self.code = status, code


def etag(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_one(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        print(f"{self.command} {self.path} HTTP/1.1", flush=True)
        parts = urlsplit(self.path)
        pairs = parse_qs(parts.query, keep_blank_values=True)
        query = {key: values[0] for key, values in pairs.items()}
        _, bucket, *name = unquote(parts.path).split("/", 2)
        try:
            if bucket != BUCKET:
                raise Refused(404, "NoSuchBucket")
            with lock:
                if name and name[0]:
                    self.object(name[0], query, body)
                else:
                    self.list(query)
        except Refused as refused:
            text = f"<Error><Code>{refused.code}</Code><Message>no</Message></Error>"
            self.answer(refused.status, text.encode())

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        self.send_header("Content-Length", headers.pop("length", len(body)))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def list(self, query):
        if query.get("list-type") != "2":
            raise Refused(400, "InvalidArgument")
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        names = sorted(name for name in objects if name.startswith(prefix) and name > after)
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(objects[name][1])}</Size>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(etag(objects[name][1]))}</ETag></Contents>"
            for name in names[:PAGE])
        more = len(names) > PAGE
        token = f"<NextContinuationToken>{escape(names[PAGE - 1])}</NextContinuationToken>"
        text = (f"<ListBucketResult><Name>{BUCKET}</Name>"
                f"<IsTruncated>{str(more).lower()}</IsTruncated>"
                f"{contents}{token if more else ''}</ListBucketResult>")
        self.answer(200, text.encode(), Content_Type="application/xml")

    def object(self, name, query, body):
        if self.command == "POST" and "uploads" in query:
            upload = f"upload-{next(generations)}"
            uploads[upload] = (name, {})
            text = (f"<InitiateMultipartUploadResult><Bucket>{BUCKET}</Bucket>"
                    f"<Key>{escape(name)}</Key><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>")
            self.answer(200, text.encode())
        elif "uploadId" in query:
            self.part(name, query, body)
        elif self.command == "PUT":
            if source := self.headers.get("x-goog-copy-source"):
                bucket, source = unquote(source).split("/", 1)
                if bucket != BUCKET or source not in objects:
                    raise Refused(404, "NoSuchKey")
                body = objects[source][1]
            self.store(name, body)
        elif name not in objects:
            raise Refused(404, "NoSuchKey")
        elif self.command == "DELETE":
            del objects[name]
            self.answer(204)
        else:
            self.get(*objects[name])

    def store(self, name, body):
        wanted = self.headers.get("x-goog-if-generation-match")
        if wanted is not None and int(wanted) != objects.get(name, (0,))[0]:
            raise Refused(412, "PreconditionFailed")
        objects[name] = (next(generations), body)
        text = f"<CopyObjectResult><ETag>{escape(etag(body))}</ETag></CopyObjectResult>"
        self.answer(200, text.encode(), ETag=etag(body), x_goog_generation=objects[name][0])

    def part(self, name, query, body):
        upload = query["uploadId"]
        if upload not in uploads or uploads[upload][0] != name:
            raise Refused(404, "NoSuchUpload")
        parts = uploads[upload][1]
        if self.command == "PUT":
            parts[int(query["partNumber"])] = body
            self.answer(200, ETag=etag(body))
        elif self.command == "DELETE":
            del uploads[upload]
            self.answer(204)
        elif self.command == "POST":
            numbers = re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode())
            tags = [unescape(tag, {"&quot;": '"'})
                    for tag in re.findall(r"<ETag>([^<]+)</ETag>", body.decode())]
            chosen = [parts.get(int(number), b"") for number in numbers]
            if not numbers or tags != [etag(part) for part in chosen]:
                raise Refused(400, "InvalidPart")
            if any(len(part) < LEAST_PART_BYTES for part in chosen[:-1]):
                raise Refused(400, "EntityTooSmall")
            del uploads[upload]
            whole = b"".join(chosen)
            objects[name] = (next(generations), whole)
            text = (f"<CompleteMultipartUploadResult><Bucket>{BUCKET}</Bucket>"
                    f"<ETag>{escape(etag(whole))}</ETag></CompleteMultipartUploadResult>")
            self.answer(200, text.encode(), x_goog_generation=objects[name][0])
        else:
            raise Refused(405, "MethodNotAllowed")

    def get(self, generation, data):
        status, headers, length = 200, {}, len(data)
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if found:
            first, last = int(found[1]), int(found[2] or length - 1)
            if first >= length:
                raise Refused(416, "InvalidRange")
            last = min(last, length - 1)
            status, headers = 206, {"Content_Range": f"bytes {first}-{last}/{length}"}
            data = data[first:last + 1]
        self.answer(status, data, ETag=etag(data), x_goog_generation=generation,
                    Last_Modified=formatdate(usegmt=True), **headers)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
# A client that was killed is no failure.
server.handle_error = lambda *_: None
print(server.server_port, flush=True)
sys.stdout.flush()
server.serve_forever()
