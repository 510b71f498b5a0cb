// The script of the page. It draws the band in time, loads folded directories, listens for news and
// answers keys. Every page works without it, but for the band. Data becomes text, never markup.
'use strict';
(() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Light and dark.
  const root = document.documentElement;
  const known = localStorage.getItem('theme');
  if (known) root.dataset.theme = known;
  $('#theme')?.addEventListener('click', () => {
    const isDark = root.dataset.theme ? root.dataset.theme === 'dark'
      : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = isDark ? 'light' : 'dark';
    localStorage.setItem('theme', root.dataset.theme);
  });

  // The band in time.
  const SVG = 'http://www.w3.org/2000/svg';
  const svg = (name, attributes, text) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const TICKS = [1, 5, 15, 60, 300, 900, 3600, 10800, 21600, 86400, 604800, 2592000, 7776000, 31536000];
  const LANE = 46, TOP = 20;
  const band = $('#band');
  if (band) {
    let data, from, to, inner = {steps: [], restores: []}, innerOf = '', at = -1;
    const hover = $('#hover'), quiet = hover.textContent;
    const zones = new Intl.DateTimeFormat(undefined, {dateStyle: 'medium', timeStyle: 'short'});
    const label = (time, step) => new Date(time).toLocaleString(undefined,
      step >= 31536000 ? {year: 'numeric'} : step >= 2592000 ? {month: 'short', year: 'numeric'}
        : step >= 86400 ? {day: 'numeric', month: 'short'}
          : step >= 60 ? {hour: '2-digit', minute: '2-digit'} : {hour: '2-digit', minute: '2-digit', second: '2-digit'});
    const say = (text) => { hover.textContent = text || quiet; };
    const fit = () => {
      const times = data.marks.flatMap((mark) => [mark[2], mark[3] ?? Date.now()]);
      const first = Math.min(...times), last = Math.max(...times);
      const room = Math.max((last - first) * 0.04, 30000);
      [from, to] = [first - room, last + room];
    };
    const go = (open) => { location.href = '/session?id=' + encodeURIComponent(open); };
    const draw = () => {
      const width = band.clientWidth || 800, height = TOP + data.projects.length * LANE;
      const x = (time) => (time - from) / (to - from) * width;
      const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, height, role: 'presentation'});
      const wanted = (to - from) / 1000 / (width / 110);
      const step = TICKS.find((tick) => tick >= wanted) ?? TICKS.at(-1);
      const offset = new Date(to).getTimezoneOffset() * 60000;
      for (let time = Math.ceil((from - offset) / step / 1000) * step * 1000 + offset; time < to; time += step * 1000) {
        picture.append(svg('line', {class: 'tick', x1: x(time), x2: x(time), y1: TOP - 4, y2: height}));
        picture.append(svg('text', {x: x(time) + 3, y: 12}, label(time, step)));
      }
      const most = Math.max(1, ...data.marks.map((mark) => mark[4]));
      data.projects.forEach((name, lane) => {
        picture.append(svg('rect', {class: 'lane', x: 0, y: TOP + lane * LANE, width, height: LANE - 4, rx: 6, opacity: .5}));
      });
      data.marks.forEach((mark, index) => {
        const [id, lane, begin, end, total, kind, title, pinned] = mark;
        const left = x(begin), right = x(end ?? Date.now());
        if (right < -2 || left > width + 2) return;
        const size = 6 + (LANE - 26) * Math.log1p(total) / Math.log1p(most);
        const base = TOP + lane * LANE + LANE - 6;
        const rect = svg('rect', {class: 'mark ' + kind + (index === at ? ' at' : ''), x: Math.max(left, -2), y: base - size,
          width: Math.max(3, Math.min(right, width + 2) - Math.max(left, -2)), height: size, 'data-id': id});
        const words = `${title} · ${zones.format(begin)} · ${total} change${total === 1 ? '' : 's'}` +
          (mark[8] ? ` · ${mark[8]} steps` : '') + (kind === 'fine' ? '' : ` · ${kind}`) + (pinned ? ' · pinned' : '');
        rect.addEventListener('pointerenter', () => say(words));
        rect.addEventListener('click', () => { if (!moved) go(id); });
        rect.append(svg('title', {}, words));
        picture.append(rect);
        if (pinned) picture.append(svg('circle', {class: 'pin', cx: left + 1.5, cy: base - size - 4, r: 2}));
        if (index === at) say(words);
      });
      const lanes = new Map(data.marks.map((mark) => [mark[0], mark[1]]));
      for (const [id, number, time, total, failed, title, prompt] of inner.steps) {
        const lane = lanes.get(id);
        if (lane === undefined) continue;
        const line = svg('rect', {class: 'mark step' + (failed ? ' failed' : ''), x: x(time) - 1.5, y: TOP + lane * LANE + LANE - 14, width: 3, height: 8});
        const words = `step ${number} · ${title} · ${total} changes` + (prompt ? ` · ${prompt}` : '');
        line.addEventListener('pointerenter', () => say(words));
        line.addEventListener('click', () => { location.href = `/session?id=${encodeURIComponent(id)}&step=${number}`; });
        line.append(svg('title', {}, words));
        picture.append(line);
      }
      for (const [id, time, number] of inner.restores) {
        const lane = lanes.get(id);
        if (lane === undefined) continue;
        const mark = svg('circle', {class: 'mark restore', cx: x(time), cy: TOP + lane * LANE + LANE - 6, r: 4});
        mark.append(svg('title', {}, `restored to state ${number} · ${zones.format(time)}`));
        picture.append(mark);
      }
      data.projects.forEach((name, lane) => {
        picture.append(svg('text', {class: 'lane-name', x: 8, y: TOP + lane * LANE + 14}, name));
      });
      band.replaceChildren(picture);
      const span = Math.round((to - from) / 1000);
      $$('[data-span]').forEach((button) => button.setAttribute('aria-pressed', String(Number(button.dataset.span) === span)));
      loadInner();
    };
    let timer;
    const loadInner = () => {
      clearTimeout(timer);
      const wanted = `${Math.floor(from / 1000)}-${Math.ceil(to / 1000)}`;
      if (to - from > 14 * 86400000 || wanted === innerOf) return;
      timer = setTimeout(async () => {
        innerOf = wanted;
        const address = new URL(band.dataset.marks, location.href);
        address.searchParams.set('from', Math.floor(from / 1000));
        address.searchParams.set('to', Math.ceil(to / 1000));
        const answer = await fetch(address);
        if (answer.ok && innerOf === wanted) { inner = await answer.json(); draw(); }
      }, 150);
    };
    const zoom = (factor, around = (from + to) / 2) => {
      const span = Math.min(Math.max((to - from) * factor, 10000), 5 * 31536000000);
      const share = (around - from) / (to - from);
      [from, to] = [around - span * share, around + span * (1 - share)];
      draw();
    };
    const shift = (share) => { const by = (to - from) * share; from += by; to += by; draw(); };
    let moved = false;
    band.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) < Math.abs(event.deltaY) && band.scrollHeight > band.clientHeight) return;
      event.preventDefault();
      const place = band.getBoundingClientRect();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) shift(event.deltaX / place.width);
      else zoom(Math.exp(event.deltaY / 400), from + (event.clientX - place.left) / place.width * (to - from));
    }, {passive: false});
    band.addEventListener('pointerdown', (event) => {
      const begin = event.clientX, [first, last] = [from, to];
      moved = false;
      const move = (event) => {
        const by = (begin - event.clientX) / band.clientWidth * (last - first);
        if (!moved && Math.abs(begin - event.clientX) < 4) return;
        moved = true;
        [from, to] = [first + by, last + by];
        draw();
      };
      const end = () => { removeEventListener('pointermove', move); removeEventListener('pointerup', end); };
      addEventListener('pointermove', move);
      addEventListener('pointerup', end);
    });
    band.addEventListener('pointerleave', () => say(''));
    band.addEventListener('keydown', (event) => {
      const order = () => data.marks.map((mark, index) => [mark[2], index]).sort((a, b) => a[0] - b[0]).map((it) => it[1]);
      const pick = (by) => {
        const all = order(), now = all.indexOf(at);
        at = all[Math.min(Math.max(now < 0 ? all.length - 1 : now + by, 0), all.length - 1)];
        const time = data.marks[at][2];
        if (time < from || time > to) shift((time - (from + to) / 2) / (to - from)); else draw();
      };
      if (event.key === 'ArrowLeft') pick(-1);
      else if (event.key === 'ArrowRight') pick(1);
      else if (event.key === '+' || event.key === '=') zoom(0.5, at < 0 ? undefined : data.marks[at][2]);
      else if (event.key === '-') zoom(2, at < 0 ? undefined : data.marks[at][2]);
      else if (event.key === 'Enter' && at >= 0) go(data.marks[at][0]);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    $$('[data-span]').forEach((button) => button.addEventListener('click', () => {
      if (button.dataset.span === 'fit') fit();
      else {
        const span = Number(button.dataset.span) * 1000;
        const newest = Math.max(...data.marks.map((mark) => mark[3] ?? Date.now()));
        const around = from + (to - from) / 2;
        const middle = newest >= from && newest <= to ? newest - span * 0.35 : around;
        [from, to] = [middle - span / 2, middle + span / 2];
      }
      draw();
    }));
    $$('[data-move]').forEach((button) => button.addEventListener('click', () => shift(Number(button.dataset.move) * 0.5)));
    const load = async (keep) => {
      const answer = await fetch(band.dataset.marks);
      if (!answer.ok) return;
      data = await answer.json();
      if (!data.marks.length) return;
      if (!keep) fit();
      innerOf = '';
      draw();
    };
    band.addEventListener('news', () => load(true));
    new ResizeObserver(() => { if (data?.marks.length) draw(); }).observe(band);
    load(false);
  }

  // Directories that are folded are loaded when they are opened.
  document.addEventListener('toggle', async (event) => {
    const details = event.target;
    const address = details.dataset?.load;
    if (!details.open || !address) return;
    delete details.dataset.load;
    const answer = await fetch(address);
    if (!answer.ok) return;
    const loaded = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const list = $('ul.tree > *', loaded) && $('ul.tree', loaded);
    if (list) { list.className = ''; $('ul', details).replaceWith(list); }
    if (details.previousElementSibling?.checked) $$('input[name=path]', details).forEach((box) => { box.checked = true; });
  }, true);

  // A directory that is chosen is chosen with all that is in it.
  const count = () => $$('[data-needs]').forEach((button) => {
    button.disabled = !$(`input[name=${button.dataset.needs}]:checked`);
  });
  document.addEventListener('change', (event) => {
    const box = event.target;
    if (box.name === 'path') {
      const details = box.nextElementSibling;
      if (details?.tagName === 'DETAILS') $$('input[name=path]', details).forEach((it) => { it.checked = box.checked; });
      if (!box.checked) {
        for (let above = box.closest('details'); above; above = above.parentElement.closest('details')) {
          const top = above.previousElementSibling;
          if (top?.name === 'path') top.checked = false;
        }
      }
    }
    count();
  });
  count();

  // The filter of the tree.
  $('#filter')?.addEventListener('input', (event) => {
    const text = event.target.value.toLowerCase();
    const show = (item) => {
      const below = $$(':scope > details > ul > li', item);
      const own = ($('.name', item)?.textContent ?? '').toLowerCase().includes(text);
      const inside = below.map(show).some(Boolean);
      item.hidden = Boolean(text) && !own && !inside;
      item.style.display = item.hidden ? 'none' : '';
      if (own) below.forEach((it) => { it.style.display = ''; });
      return own || inside;
    };
    $$('ul.tree > li').forEach(show);
  });

  // The slider through the states.
  const states = $('#states');
  if (states) {
    const numbers = states.dataset.numbers.split(' ');
    states.addEventListener('input', () => { states.parentElement.querySelector('output').textContent = numbers[states.value]; });
    states.addEventListener('change', () => {
      location.href = `/session?id=${encodeURIComponent(states.dataset.id)}&to=${numbers[states.value]}`;
    });
  }

  // Two pictures, one over the other.
  const swipe = $('#swipe');
  if (swipe) {
    const place = $('.pictures.two');
    const cut = () => { $('.before img', place).style.clipPath = `inset(0 ${100 - swipe.value}% 0 0)`; };
    swipe.addEventListener('input', () => { place.classList.add('over'); cut(); });
  }

  // A yes that is about another number is none.
  const expected = $('input[data-expected]');
  if (expected) {
    const button = expected.form.querySelector('button[data-busy]');
    const check = () => { button.disabled = expected.value.trim() !== expected.dataset.expected; };
    expected.addEventListener('input', check);
    check();
  }
  $$('input[data-state=checked]').forEach((box) => { box.checked = true; });
  // How far work is, on the page whose form began it.
  const listen = (form) => {
    const name = form.elements.namedItem('work');
    if (!name) return;
    name.value = crypto.getRandomValues(new Uint32Array(4)).join('-');
    const [words, text, bar] = ['p', 'span', 'progress'].map((tag) => document.createElement(tag));
    words.className = 'work';
    text.setAttribute('role', 'status');
    bar.setAttribute('aria-label', 'Progress');
    words.append(bar, text);
    form.append(words);
    const source = new EventSource('/progress?work=' + name.value);
    source.addEventListener('progress', (event) => {
      const {stage, done, expected} = JSON.parse(event.data);
      const of = expected ? `${done} of ${expected}` : done ? String(done) : '';
      text.textContent = stage + (of && ': ' + of);
      if (expected) {
        bar.max = expected;
        bar.value = Math.min(done, expected);
      } else bar.removeAttribute('value');
    });
    addEventListener('pagehide', () => { source.close(); words.remove(); });
  };
  document.addEventListener('submit', (event) => {
    const button = event.submitter;
    if (button?.dataset.busy) listen(event.target);
    if (button?.dataset.busy) setTimeout(() => { button.textContent = button.dataset.busy; button.disabled = true; });
  });

  // News of the store.
  const live = $('#live');
  const meant = live && live.dataset.live !== 'sessions' ? live.dataset.live : '';
  if (window.EventSource) {
    const source = new EventSource('/events' + (meant ? '?id=' + encodeURIComponent(meant) : ''));
    let waits = false;
    source.addEventListener('sessions', async () => {
      if (!live || waits) return;
      waits = true;
      const answer = await fetch(location.href);
      waits = false;
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
      for (const selector of ['#live', '.title']) {
        const [now, next] = [$(selector), $(selector, fresh)];
        if (!now || !next) continue;
        const chosen = $$('input:checked', now).map((box) => box.name + '=' + box.value);
        const top = now.scrollTop;
        // The keys stay at their row.
        const at = current && now.contains(current) ? nameOf(current) : '';
        const hasFocus = now.contains(document.activeElement);
        now.replaceChildren(...next.childNodes);
        now.scrollTop = top;
        if (at) mark($$(ROWS, now).find((row) => nameOf(row) === at), hasFocus);
        $$('input', now).forEach((box) => { box.checked = chosen.includes(box.name + '=' + box.value); });
      }
      count();
      band?.dispatchEvent(new Event('news'));
    });
    addEventListener('pagehide', () => source.close());
  }

  // Keys.
  const ROWS = '.row, .step, .prompt > a, .tree li, .versions li, .paths li, .found li';
  const help = () => {
    const dialog = document.createElement('dialog');
    const list = document.createElement('dl');
    for (const [key, text] of [['j k', 'next and previous row'], ['Enter', 'open the row'], ['x', 'choose the row'],
      ['u', 'undo what is chosen, or this'], ['/', 'search'], ['Esc', 'back'], ['← →', 'in the band: the session before or after'],
      ['+ −', 'in the band: zoom']]) {
      const term = document.createElement('dt'), words = document.createElement('dd'), box = document.createElement('kbd');
      box.textContent = key;
      words.textContent = text;
      term.append(box);
      list.append(term, words);
    }
    const title = document.createElement('h2'), form = document.createElement('form'), close = document.createElement('button');
    title.textContent = 'Keys';
    close.textContent = 'Close';
    form.method = 'dialog';
    form.append(close);
    dialog.append(title, list, form);
    dialog.addEventListener('close', () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  };
  let current = null;
  // A row is known by its session, its link or its choice.
  const nameOf = (row) => row.dataset.id || row.href || $('a', row)?.href || $('input', row)?.value || '';
  const mark = (row, hasFocus) => {
    current?.classList.remove('at', 'at-row');
    current = row ?? null;
    if (!row) return;
    row.classList.add(row.matches('.row') ? 'at' : 'at-row');
    const link = row.matches('a') ? row : $('a, summary', row);
    if (hasFocus) link?.focus({preventScroll: true});
  };
  const select = (by) => {
    const rows = $$(ROWS).filter((row) => row.offsetParent !== null);
    if (!rows.length) return;
    const now = rows.indexOf(current);
    mark(rows[Math.min(Math.max(now + by, 0), rows.length - 1)], true);
    current.scrollIntoView({block: 'nearest'});
  };
  document.addEventListener('keydown', (event) => {
    const field = event.target.closest('input, textarea, select');
    const isText = field && !['checkbox', 'radio', 'range'].includes(field.type);
    if (event.key === 'Escape') { if (isText) field.blur(); else if (!$('dialog')) history.back(); return; }
    if (isText || event.ctrlKey || event.metaKey || event.altKey || $('dialog')) return;
    const keys = {
      j: () => select(1), k: () => select(-1), '/': () => $('#find').focus(), '?': help,
      x: () => current?.querySelector('input[type=checkbox]')?.click(),
      u: () => {
        const chosen = $$('button[data-needs]').find((button) => !button.disabled);
        const row = current?.matches('.row') ? current.dataset.id : null;
        if (chosen) chosen.click();
        else if (row) location.href = '/undo?what=all&id=' + encodeURIComponent(row);
        else $('[data-undo]')?.click();
      },
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
})();
