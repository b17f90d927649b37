"""Crawls a web site through the proxies of a fleet.

    python3 crawl.py [--fleet URL] URL

It follows the links of each page that stay on the host, and prints a line for each page: status, URL, and the proxy that
served it. A page that could not be had gets a line with the error.
"""

import argparse
from urllib.parse import urlsplit

import scrapy
from scrapy.crawler import CrawlerProcess


class Site(scrapy.Spider):
    name = "site"

    def start_requests(self):
        yield scrapy.Request(self.start, self.parse, errback=self.failed)

    def parse(self, response):
        print(response.status, response.url, response.meta["proxyfleet_proxy"], flush=True)
        for link in response.css("a::attr(href)").getall():
            link = response.urljoin(link)
            if urlsplit(link).netloc == urlsplit(self.start).netloc:
                yield scrapy.Request(link, self.parse, errback=self.failed)

    def failed(self, failure):
        response = getattr(failure.value, "response", None)
        print(response.status if response else failure.type.__name__, failure.request.url, failure.getErrorMessage(), flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Crawls a web site through the proxies of a fleet.")
    arguments.add_argument("--fleet", default="http://127.0.0.1:8090", help="URL of the fleet's API; its token is in PROXYFLEET_TOKEN")
    arguments.add_argument("--log-level", default="WARNING")
    arguments.add_argument("url", help="where to begin")
    given = arguments.parse_args()
    process = CrawlerProcess(
        {
            "DOWNLOADER_MIDDLEWARES": {"proxyfleet.LeaseMiddleware": 740},
            "PROXYFLEET_URL": given.fleet,
            # What this site shows to those whom it takes for a robot. A crawler looks for the like on each of its sites.
            "PROXYFLEET_BAN_TEXTS": ["Are you human?"],
            "RETRY_ENABLED": False,  # the fleet's middleware tries other proxies
            "TELNETCONSOLE_ENABLED": False,
            "LOG_LEVEL": given.log_level,
        }
    )
    process.crawl(Site, start=given.url)
    process.start()
