"""Read what a proxy counts: python examples/read_metrics.py [http://127.0.0.1:8485]

Prints how much of the prompts came from the model server's cache, and which repairs the model's calls needed. A proxy with a key
wants it here, too: set XMLCALL_API_KEY. `serve --open-metrics` shows its metrics without one.
"""

import os
import sys
from collections import Counter

import httpx2
from prometheus_client.parser import text_string_to_metric_families


def read(url: str) -> dict[str, Counter[str]]:
    """Return the sums of each metric by the code, the outcome or the model that it is about."""
    key = os.environ.get("XMLCALL_API_KEY")
    answer = httpx2.get(f"{url}/metrics", headers={"Authorization": f"Bearer {key}"} if key else {})
    answer.raise_for_status()
    sums: dict[str, Counter[str]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            about = next((sample.labels[name] for name in ("code", "outcome", "model") if name in sample.labels), "")
            sums.setdefault(sample.name, Counter())[about] += round(sample.value)
    return sums


def main() -> None:
    sums = read(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8485")
    nothing: Counter[str] = Counter()
    cached = sums.get("xmlcall_cached_tokens_total", nothing)
    for model, tokens in sums.get("xmlcall_prompt_tokens_total", nothing).items():
        print(f"{model}: {cached[model] / tokens:.0%} of {tokens:,} prompt tokens came from the cache")
    for outcome, count in sums.get("xmlcall_calls_total", nothing).most_common():
        print(f"calls {outcome}: {count}")
    for code, count in sums.get("xmlcall_repairs_total", nothing).most_common():
        print(f"  repaired {code}: {count}")


if __name__ == "__main__":
    main()
