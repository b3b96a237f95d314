// Signs in with a token. The server answers with a cookie that scripts cannot read.
import { send } from "../api.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { loadSession } from "../model.js";
import { Field, Notice } from "../parts.js";
import { t } from "../texts.js";

const AGAIN_MS = 30000;

function failureOf(error) {
  if (error.status === 429) return t.login.wait(error.retryAfter ?? 1);
  return error.status === 401 ? t.login.wrong : error.message;
}

export default function Login() {
  const input = useRef(null);
  const [failure, setFailure] = useState(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    input.current.focus();
    // A screen on a wall, where nobody types: its session may be good again, such as when the server's clock is.
    const timer = setInterval(() => loadSession().catch(() => {}), AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await send("POST", "/api/login", { token: input.current.value.trim() });
      await loadSession(); // the frame leaves this page
    } catch (error) {
      setFailure(failureOf(error));
      input.current.select();
    }
    setBusy(false);
  };
  return html`<form class="login card" onSubmit=${submit}>
    <img src="/static/icon.svg" alt="" width="36" height="36" />
    <h1>${t.login.title}</h1>
    <input type="text" autocomplete="username" value="lookout" hidden readonly />
    <${Field} label=${t.login.token} id="token" hint=${t.login.hint}>
      <input ref=${input} id="token" type="password" autocomplete="current-password" required spellcheck="false"
        aria-describedby="token-hint" />
    <//>
    ${failure && html`<${Notice} kind="error">${failure}<//>`}
    <button class="primary" disabled=${busy}>${t.login.submit}</button>
  </form>`;
}
