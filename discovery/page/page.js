// Fetches the page again and puts what changed in its place, so that scroll position, focus and what is being typed stay.
(() => {
  'use strict';
  const every = 1000 * Number(document.body.dataset.refresh);
  const stale = document.getElementById('stale');
  let last = new Date();
  let timer = 0;

  function lost(why) {
    stale.textContent = `Not up to date since ${last.toLocaleTimeString()}: ${why}`;
    stale.hidden = false;
  }

  const parts = (doc) => [...doc.querySelectorAll('[data-live]')];

  // Whoever selects text wants to copy it: it stays as it is until they are done.
  function selecting(part) {
    const selection = document.getSelection();
    return selection !== null && !selection.isCollapsed && selection.containsNode(part, true);
  }

  function replace(part, next) {
    if (part.isEqualNode(next) || selecting(part)) return;
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute('href') : null;
    part.replaceWith(next);
    if (focused !== null) next.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  async function refresh() {
    // The address bar may hold a password, with which nothing can be fetched.
    const url = new URL(location.pathname + location.search, location.origin);
    let response, text;
    try {
      response = await fetch(url, { cache: 'no-store', signal: AbortSignal.timeout(10000) });
      text = await response.text();
    } catch {
      return lost('the fleet does not answer.');
    }
    const next = new DOMParser().parseFromString(text, 'text/html');
    const ids = (doc) => parts(doc).map((part) => part.id).join();
    if (ids(next) !== ids(document)) {
      if (response.ok) return location.reload();
      return lost(`the fleet answers ${response.status}.`);
    }
    for (const part of parts(document)) replace(part, next.getElementById(part.id));
    document.title = next.title;
    last = new Date();
    stale.hidden = true;
  }

  async function loop() {
    clearTimeout(timer);
    if (!document.hidden) await refresh();
    clearTimeout(timer);
    timer = setTimeout(loop, every);
  }

  timer = setTimeout(loop, every);
  document.addEventListener('visibilitychange', () => { if (!document.hidden) loop(); });
})();
