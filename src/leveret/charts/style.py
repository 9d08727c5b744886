"""The style sheet of chart pages: colours that are distinct in light, in dark and on paper.

Colours and letters are those of the management page (`http/page/style/tokens.css`).
"""

from typing import Final

_LIGHT: Final = (
    *("#1c6094", "#a94f17", "#37742f", "#76449a"),
    *("#a16207", "#be123c", "#4d7c0f", "#57606a"),
)
_DARK: Final = (
    *("#7fbcec", "#eb9f6a", "#93c97f", "#c7a0e4"),
    *("#facc15", "#fb7185", "#a3e635", "#9ca3af"),
)


def _colours(values: tuple[str, ...]) -> str:
    return "".join(f"--c{number}:{value};" for number, value in enumerate(values))


_CLASSES: Final = "".join(f".c{number}{{--own:var(--c{number})}}" for number in range(len(_LIGHT)))

STYLE: Final = (
    ":root{color-scheme:light dark;--back:#f5f2ec;--card:#fffdf9;--text:#24211c;--soft:#5d564a;"
    f"--edge:#dcd4c6;--link:#2b5d43;{_colours(_LIGHT)}}}"
    "@media(prefers-color-scheme:dark){:root{--back:#151412;--card:#1e1c19;--text:#ece7dd;"
    f"--soft:#b3ab9c;--edge:#37332d;--link:#93c9a8;{_colours(_DARK)}}}}}"
    f"{_CLASSES}"
    """
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
h1,h2{font-family:ui-serif,"Iowan Old Style","Palatino Linotype",Palatino,Georgia,"Noto Serif",
"DejaVu Serif",serif;font-weight:500}
a{color:var(--link)}
header,main{max-width:1240px;margin:0 auto;padding:0 24px}
header{padding-top:28px}
h1{font-size:28px;line-height:1.2;margin:0}
header p{margin:4px 0 20px;color:var(--soft)}
h2{font-size:18px;line-height:1.3;margin:0 0 10px}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:0 0 20px}
dl div,section{background:var(--card);border:1px solid var(--edge);border-radius:10px}
dl div{padding:12px 16px}
dt{color:var(--soft);font-size:13px}
dd{margin:0;font-size:24px;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
dd.long{font-size:15px}
section{padding:16px 18px;margin:0 0 20px}
section.both{display:grid;grid-template-columns:minmax(0,1fr) fit-content(50%);gap:0 24px}
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
th.number,td.number{text-align:right;font-variant-numeric:tabular-nums}
td.number{white-space:nowrap}
.times th{overflow-wrap:anywhere;min-width:4em}
@media(max-width:800px){section.both{grid-template-columns:minmax(0,1fr);gap:12px}
header,main{padding:0 12px}header{padding-top:16px}}
@media print{.numbers{max-height:none}section{break-inside:avoid}}
"""
)
