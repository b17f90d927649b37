# The image of proxyfleet: one static program and the roots it trusts. `make image` puts both where this finds them.
FROM scratch
COPY bin/image/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY bin/image/proxyfleet /proxyfleet
USER 65532:65532
ENTRYPOINT ["/proxyfleet"]
