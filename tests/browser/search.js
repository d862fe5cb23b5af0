const [words, done] = arguments;
const field = document.getElementById("search-words");
document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "/", bubbles: true}));
if (document.activeElement !== field) return done([]);
field.value = words;
field.dispatchEvent(new Event("input"));
const wait = () => {
  const found = [...document.querySelectorAll("#search-found li")];
  if (!found.length) return setTimeout(wait, 20);
  done(found.map((each) => [each.querySelector("a")?.getAttribute("href") ?? "", each.textContent,
    each.querySelector(".badge")?.textContent ?? ""]));
};
wait();
