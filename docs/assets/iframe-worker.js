// Browsers refuse to start a worker from a page that was opened as a file. Such a page runs the worker's script in a
// hidden frame instead, so that the search works without a server.
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      inner.document.open();
      inner.document.write("<!doctype html><body></body>");
      inner.document.close();
      inner.importScripts = (...urls) =>
        urls.reduce(
          (before, next) =>
            before.then(
              () =>
                new Promise((done, failed) => {
                  const script = inner.document.createElement("script");
                  script.src = new URL(next, url).href;
                  script.onload = done;
                  script.onerror = failed;
                  inner.document.body.appendChild(script);
                }),
            ),
          Promise.resolve(),
        );
      // What the script posts is an event of this worker, and what is posted to the worker is one of the script's window.
      inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const script = inner.document.createElement("script");
      script.src = url;
      script.onload = () => {
        const kept = this.waiting;
        this.waiting = null;
        kept.forEach((data) => this.postMessage(data));
      };
      inner.document.body.appendChild(script);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
