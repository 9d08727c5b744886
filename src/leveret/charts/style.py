"""The style sheet of chart pages: colours that are distinct in light, in dark and on paper."""

from typing import Final

_LIGHT: Final = (
    *("#0b62a8", "#c2410c", "#0f766e", "#a21caf"),
    *("#a16207", "#be123c", "#4d7c0f", "#57606a"),
)
_DARK: Final = (
    *("#6cb6ff", "#fb923c", "#2dd4bf", "#e879f9"),
    *("#facc15", "#fb7185", "#a3e635", "#9ca3af"),
)


def _colours(values: tuple[str, ...]) -> str:
    return "".join(f"--c{number}:{value};" for number, value in enumerate(values))


_CLASSES: Final = "".join(f".c{number}{{--own:var(--c{number})}}" for number in range(len(_LIGHT)))

STYLE: Final = (
    ":root{color-scheme:light dark;--back:#fbfbfa;--card:#fff;--text:#1c2126;--soft:#59636e;"
    f"--edge:#d9dee3;{_colours(_LIGHT)}}}"
    "@media(prefers-color-scheme:dark){:root{--back:#14171a;--card:#1d2125;--text:#e6e9ec;"
    f"--soft:#a0aab4;--edge:#3a4149;{_colours(_DARK)}}}}}"
    f"{_CLASSES}"
    """
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
header,main{max-width:1240px;margin:0 auto;padding:0 24px}
header{padding-top:28px}
h1{font-size:26px;margin:0;letter-spacing:-.01em}
header p{margin:4px 0 20px;color:var(--soft)}
h2{font-size:17px;margin:0 0 10px}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:0 0 20px}
dl div,section{background:var(--card);border:1px solid var(--edge);border-radius:8px}
dl div{padding:12px 16px}
dt{color:var(--soft);font-size:13px}
dd{margin:0;font-size:24px;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
dd.long{font-size:15px}
section{padding:16px 18px;margin:0 0 20px}
section.both{display:grid;grid-template-columns:minmax(0,2fr) minmax(0,1fr);gap:0 24px}
section.both h2{grid-column:1/-1}
ul{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 8px;padding:0;font-size:13px}
li{max-width:100%;overflow-wrap:anywhere}
h1,h2,header p{overflow-wrap:anywhere}
li svg{width:26px;height:12px;margin-right:6px;vertical-align:-1px}
.drawn svg[role=img]{display:block;width:100%;height:auto}
.drawn text{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}
.grid{stroke:var(--edge);stroke-width:1}
.tick{stroke:var(--soft);stroke-width:1}
.line{fill:none;stroke:var(--own);stroke-width:2;stroke-linejoin:round}
.dot{fill:var(--own)}
.faint{opacity:0}
.drawn p{margin:0;color:var(--soft);font-size:13px}
.bar{fill:var(--own)}
.numbers{max-height:330px;overflow:auto;font-size:13px}
.numbers:focus-visible{outline:2px solid var(--c0);outline-offset:2px}
table{border-collapse:collapse;width:100%}
th{position:sticky;top:0;background:var(--card);text-align:left;color:var(--soft);font-weight:600}
th,td{padding:3px 14px 3px 0;border-bottom:1px solid var(--edge);overflow-wrap:break-word;
vertical-align:top}
td{max-width:30em;overflow-wrap:anywhere}
.times td:first-child{white-space:nowrap}
th.number,td.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
@media(max-width:800px){section.both{grid-template-columns:minmax(0,1fr);gap:12px}
header,main{padding:0 12px}header{padding-top:16px}}
@media print{.numbers{max-height:none}section{break-inside:avoid}}
"""
)
