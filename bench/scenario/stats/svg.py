"""Line charts as SVG, enough for the guide's plots."""

import math

COLOURS = ["#1f5fa8", "#d1495b", "#2a9d55", "#8a5fb0", "#c98a1b", "#555555"]


def chart(path, title, x_label, y_label, series, log_x=False, log_y=False, marks=(), width=640, height=400):
    """series: [(name, xs, ys)]; marks: vertical lines at these x."""
    left, right, top, bottom = 62, 12, 34, 46
    fx = math.log10 if log_x else float
    fy = math.log10 if log_y else float
    xs = [fx(x) for _, sx, _ in series for x in sx]
    ys = [fy(y) for _, _, sy in series for y in sy]
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    pad = 0.05 * (y1 - y0 or 1)
    y0, y1 = y0 - pad, y1 + pad
    px = lambda x: left + (fx(x) - x0) / ((x1 - x0) or 1) * (width - left - right)
    py = lambda y: height - bottom - (fy(y) - y0) / ((y1 - y0) or 1) * (height - top - bottom)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="20" font-size="14">{title}</text>']
    for k in range(5):
        for axis in "xy":
            low, high, log = (x0, x1, log_x) if axis == "x" else (y0, y1, log_y)
            at = low + (high - low) * k / 4
            text = f"{10 ** at if log else at:.3g}"
            if axis == "x":
                x = left + (width - left - right) * k / 4
                out.append(f'<line x1="{x}" x2="{x}" y1="{top}" y2="{height - bottom}" stroke="#ddd"/>')
                out.append(f'<text x="{x}" y="{height - bottom + 16}" text-anchor="middle">{text}</text>')
            else:
                y = height - bottom - (height - top - bottom) * k / 4
                out.append(f'<line x1="{left}" x2="{width - right}" y1="{y}" y2="{y}" stroke="#ddd"/>')
                out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{text}</text>')
    for m in marks:
        out.append(f'<line x1="{px(m):.1f}" x2="{px(m):.1f}" y1="{top}" y2="{height - bottom}" stroke="#999" stroke-dasharray="4 3"/>')
    for k, (name, sx, sy) in enumerate(series):
        colour = COLOURS[k % len(COLOURS)]
        points = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in zip(sx, sy))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        out.append(f'<text x="{width - right - 8}" y="{top + 16 + 16 * k}" fill="{colour}" text-anchor="end">{name}</text>')
    out.append(f'<text x="{(left + width - right) / 2}" y="{height - 8}" text-anchor="middle">{x_label}</text>')
    out.append(f'<text transform="translate(14,{(top + height - bottom) / 2}) rotate(-90)" text-anchor="middle">{y_label}</text></svg>')
    path.write_text("\n".join(out) + "\n")
