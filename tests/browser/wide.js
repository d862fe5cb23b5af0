for (const each of document.querySelectorAll('details')) each.open = true;
const boxes = [...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth + 1);
const nameless = document.querySelector('.cards thead th ~ th') && !document.querySelector('.cards td[data-label]');
return [...boxes.map((box) => box.getAttribute('aria-label')), ...(nameless ? ['cells without names'] : []),
        ...(document.documentElement.scrollWidth > innerWidth ? ['the page'] : [])];
