# Reads a page of shardrt, of --report: as XML, by Python's own parser, and prints what is in it as JSON.
import json
import sys
import xml.etree.ElementTree as tree

XHTML, SVG = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"


def text(element):
    return "".join(element.itertext())


root = tree.parse(sys.argv[1]).getroot()
page = {"title": text(root.find(f".//{XHTML}h1")), "job": text(root.find(f".//{XHTML}p[@id='job']")), "loaders": []}
message = root.find(f".//{XHTML}pre[@id='message']")
page["message"] = text(message) if message is not None else ""
page["text"] = text(root.find(f"{XHTML}body"))
page["scripts"] = sum(1 for e in root.iter() if e.tag.endswith("}script") or any(a.startswith("on") for a in e.attrib))
page["links"] = [v for e in root.iter() for a, v in e.attrib.items() if a.endswith(("href", "src"))]
for section in root.iter(f"{XHTML}section"):
    names = [text(th) for th in section.findall(f".//{XHTML}th")]
    rows = []
    for row in section.findall(f".//{XHTML}tbody/{XHTML}tr"):
        cells = [cell.get("data-value", text(cell)) for cell in row]
        rows.append(dict(zip(names, cells, strict=True)))
    points = [len(p.get("points").split()) for p in section.iter(f"{SVG}polyline")]
    page["loaders"].append({
        "where": text(section.find(f"{XHTML}h2")), "rows": rows, "points": points,
        "pictures": len(section.findall(f".//{XHTML}figure//{SVG}svg")), "bars": len(list(section.iter(f"{SVG}rect"))),
        "items": [text(item) for item in section.iter(f"{XHTML}li")], "text": text(section),
    })
print(json.dumps(page))
