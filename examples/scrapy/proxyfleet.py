"""A Scrapy downloader middleware that leases a proxy for each request from a fleet.

    DOWNLOADER_MIDDLEWARES = {"proxyfleet.LeaseMiddleware": 740}
    PROXYFLEET_URL = "http://127.0.0.1:8090"

It needs nothing but Scrapy. docs/scrapy.md says what it does, and lists its settings.
"""

import json
import logging
import math
import os
import re
import uuid
from io import BytesIO
from time import monotonic
from urllib.parse import quote

import tldextract
from scrapy import signals
from scrapy.core.downloader.handlers.http11 import TunnelError
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.gz import gunzip
from scrapy.utils.httpobj import urlparse_cached
from twisted.internet import defer, error, task
from twisted.web.client import Agent, FileBodyProducer, HTTPConnectionPool, ResponseFailed, readBody
from twisted.web.http_headers import Headers

logger = logging.getLogger(__name__)

IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}

# How long the API is let wait for a proxy at a time, and how long to wait where nobody says, in seconds.
LONGEST_ASK = 30
UNKNOWN_PAUSE = 1


class NoProxy(IgnoreRequest):
    """The fleet had no proxy for a request, for as long as the request may wait."""


class LeaseMiddleware:
    """Leases a proxy for each request, tells the fleet what came back, and tries another proxy where that may help."""

    def __init__(self, crawler, reactor):
        settings = crawler.settings
        url = settings.get("PROXYFLEET_URL")
        if not url:
            raise NotConfigured("PROXYFLEET_URL is not set")
        self.fleet = Fleet(reactor, url, settings.get("PROXYFLEET_TOKEN") or os.environ.get("PROXYFLEET_TOKEN"))
        self.reactor = reactor
        self.selector = settings.getdict("PROXYFLEET_SELECTOR")
        self.ttl = settings.getint("PROXYFLEET_TTL") or min(3600, settings.getint("DOWNLOAD_TIMEOUT") + 120)
        self.wait = settings.getfloat("PROXYFLEET_WAIT", 60)
        self.retries = settings.getint("PROXYFLEET_RETRIES", 3)
        self.ban_statuses = {int(s) for s in settings.getlist("PROXYFLEET_BAN_STATUSES", [403])}
        self.ban_texts = [t.encode() for t in settings.getlist("PROXYFLEET_BAN_TEXTS")]
        self.domain = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)
        self.held = {}  # the leases that are open, by ID
        crawler.signals.connect(self.spider_closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler):
        from twisted.internet import reactor  # not before Scrapy has installed the one of the settings

        return cls(crawler, reactor)

    async def process_request(self, request, spider):
        tried = request.meta.setdefault("proxyfleet_tried", [])
        try:
            lease = await self._another(self._target(request), tried)
        except NoProxy as e:
            if tried:
                raise NoProxy(f"{e}; {tried[-1]} got {request.meta['proxyfleet_reason']}") from e
            raise
        proxy = lease["proxy"]
        name = f"{proxy['namespace']}/{proxy['name']}"
        if not proxy["url"].startswith(("http://", "https://")):
            await self._end(lease["leaseID"])
            raise NoProxy(f"{name} is no http proxy, and Scrapy knows no other: set PROXYFLEET_SELECTOR")
        tried.append(name)
        request.meta["proxy"] = proxy["url"]  # HttpProxyMiddleware takes the credentials out of it
        request.meta["proxyfleet_proxy"] = name
        request.meta["proxyfleet_lease"] = lease["leaseID"]

    async def process_response(self, request, response, spider):
        outcome, again = self._classify(response)
        await self._end(request.meta.pop("proxyfleet_lease", None), outcome)
        if again and self._repeatable(request):
            return self._retry(request, response.status)
        request.meta.pop("proxyfleet_tried", None)
        return response

    async def process_exception(self, request, exception, spider):
        if "proxyfleet_lease" not in request.meta:
            return None
        outcome, again, never_left = blame(exception)
        await self._end(request.meta.pop("proxyfleet_lease"), outcome)
        if again and (never_left or self._repeatable(request)) and self._attempts_left(request):
            return self._retry(request, exception)
        request.meta.pop("proxyfleet_tried", None)
        return None

    async def spider_closed(self, spider):
        for lease in list(self.held):
            await self._end(lease)
        await maybe_deferred_to_future(self.fleet.close())

    def _target(self, request):
        """The registrable domain of a request, or its host if it has none."""
        host = urlparse_cached(request).hostname or ""
        return self.domain(host).registered_domain or host

    def _classify(self, response):
        """Says what to report of a response, if anything, and whether another proxy may do better."""
        if response.status == 407:  # https requests get a TunnelError instead
            return "failed", True
        if response.status == 429:
            return "rate_limited", True
        if response.status in self.ban_statuses or self._has_text(response):
            return "banned", True
        if response.status in (502, 503, 504):  # the target's or the proxy's: nobody can tell
            return None, True
        return ("ok" if response.status < 500 else None), False

    def _has_text(self, response):
        if not self.ban_texts:
            return False
        body = response.body
        if response.headers.get("Content-Encoding") == b"gzip":
            body = gunzip(body)
        return any(text in body for text in self.ban_texts)

    def _attempts_left(self, request):
        return len(request.meta["proxyfleet_tried"]) <= self.retries

    def _repeatable(self, request):
        return request.method in IDEMPOTENT and self._attempts_left(request)

    def _retry(self, request, reason):
        logger.debug("%s is sent again: %s through %s", request, reason, request.meta["proxyfleet_proxy"])
        again = request.replace(dont_filter=True, priority=request.priority + 1)  # before pages that were not begun
        again.meta["proxyfleet_reason"] = str(reason)
        return again

    async def _another(self, target, tried):
        """Leases a proxy that was not tried yet. Where the fleet still offers one that was, it asks for two, and so on."""
        deadline = monotonic() + self.wait
        for count in range(1, len(tried) + 2):
            chosen = None
            for lease in await self._acquire(target, count, deadline):
                if chosen is None and f"{lease['proxy']['namespace']}/{lease['proxy']['name']}" not in tried:
                    chosen = lease
                else:
                    await self._end(lease["leaseID"])
            if chosen is not None:
                return chosen
        raise NoProxy(f"the fleet has no other proxy for {target}")

    async def _acquire(self, target, count, deadline):
        """Acquires so many leases, and waits for them until the deadline. More than one is not waited for at first, because
        the answer says whether there is anything to wait for."""
        waits = count == 1
        body = {"selector": self.selector, "target": target, "ttlSeconds": self.ttl, "count": count}
        while True:
            began = monotonic()
            wait = max(0, min(LONGEST_ASK, math.ceil(deadline - began))) if waits else 0
            waits = True
            status, answer = await self.fleet.call("POST", "/v1/leases", {**body, "waitSeconds": wait, "requestID": str(uuid.uuid4())}, wait)
            if status == 201:
                leases = answer.get("leases") or [answer]
                self.held.update((lease["leaseID"], True) for lease in leases)
                return leases
            if status not in (0, 409, 503):
                raise NoProxy(f"the fleet answers {status}: {answer.get('message')}")
            if status == 409 and count > 1 and answer.get("atCapacity", 0) + answer.get("eligible", 0) < count:
                raise NoProxy(f"there is no other proxy for {target}: {answer.get('message')}")
            pause = answer.get("retryAfterSeconds") or UNKNOWN_PAUSE
            if status == 409 and monotonic() - began >= wait:
                pause = 0  # it has waited itself
            if monotonic() + pause >= deadline:
                raise NoProxy(f"no proxy for {target}: {answer.get('message')}")
            await maybe_deferred_to_future(task.deferLater(self.reactor, pause))

    async def _end(self, lease, outcome=None):
        """Reports what came back, if there is something to say, and releases a lease."""
        if self.held.pop(lease, None) is None:
            return
        path = f"/v1/leases/{quote(lease, safe='')}"
        if outcome is not None:
            await self.fleet.call("POST", path + "/report", {"result": outcome})
        await self.fleet.call("DELETE", path)


def blame(exception):
    """Says what to report of a failure, if anything, whether another proxy may do better, and whether nothing had left."""
    if isinstance(exception, TunnelError):
        status = re.search(r"'status': (\d+)", str(exception))
        target_is_down = status is not None and int(status.group(1)) >= 500
        return (None if target_is_down else "failed"), True, True
    if isinstance(exception, error.ConnectError):  # every connection is to a proxy
        return "failed", True, True
    if isinstance(exception, (ResponseFailed, error.ConnectionLost, error.ConnectionDone, error.TimeoutError, defer.TimeoutError)):
        return None, True, False
    return None, False, False


class Fleet:
    """The HTTP API of a fleet. It has connections of its own: Scrapy's downloader would let requests for leases wait behind
    those that wait for leases."""

    def __init__(self, reactor, url, token):
        self.reactor = reactor
        self.url = url.rstrip("/")
        self.headers = {"Content-Type": ["application/json"], "User-Agent": ["proxyfleet-scrapy"]}
        if token:
            self.headers["Authorization"] = [f"Bearer {token}"]
        self.pool = HTTPConnectionPool(reactor)
        self.pool.maxPersistentPerHost = 16
        self.agent = Agent(reactor, connectTimeout=10, pool=self.pool)

    async def call(self, method, path, body=None, wait=0):
        """Returns the status and the decoded answer. Status 0 is an API that cannot be reached. What it says twice is said
        once, so a call whose answer was lost is made again."""
        problem = None
        for _ in range(3):
            try:
                return await self._once(method, path, body, wait)
            except Exception as e:  # of the network, or an answer that is no JSON
                problem = e
        logger.warning("The fleet cannot be reached: %s %s", method, type(problem).__name__)
        return 0, {"message": f"the fleet cannot be reached: {type(problem).__name__}"}

    async def _once(self, method, path, body, wait):
        producer = FileBodyProducer(BytesIO(json.dumps(body).encode())) if body is not None else None
        sent = self.agent.request(method.encode(), (self.url + path).encode(), Headers(self.headers), producer)
        response = await maybe_deferred_to_future(sent.addTimeout(30 + wait, self.reactor))
        text = await maybe_deferred_to_future(readBody(response).addTimeout(30, self.reactor))
        return response.code, json.loads(text) if text else {}

    def close(self):
        return self.pool.closeCachedConnections()
