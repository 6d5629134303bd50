/* Search runs in a worker, and a page on the disk (file:) may not start one: there, a hidden frame takes its place.
 * The theme looks for the name IFrameWorker to find its files from within the frame. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (message) => {
        // what the worker says: a message to whoever made it
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data: message })));
      };
      inside.importScripts = (...files) => Promise.all(files.map((file) => IFrameWorker.load(inside, file)));
      this.inside = inside;
      this.loaded = IFrameWorker.load(inside, script);
    }

    static load(inside, file) {
      return new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = file;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${file}`));
        inside.document.body.append(script);
      });
    }

    postMessage(message) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data: message })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
