/* 修复和问题的代码（errors.REPAIRS、errors.ISSUES）的中文说明；英文说明来自程序本身。 */

const ISSUES = {
  "unknown-tool": "没有提供这个名称的工具。", "missing-argument": "缺少必填的参数。", "unexpected-argument": "这个工具没有这个参数。", "wrong-type": "值的类型不符合参数定义。",
  "invalid-value": "值的类型正确，但不符合参数定义的其他要求。", "duplicate-argument": "同一个参数给了两次，值不同。", "malformed-value": "值不是参数定义所要求的 JSON，无法读取。",
  ambiguous: "这个调用有两种读法，参数不同，无法确定是哪一种。", "truncated-call": "回复在调用写完之前就结束了。如果是在词元上限处被截断，请允许更多词元（max_tokens）。",
  "mentioned-call": "这个调用在句子、引文或示例中，可能只是提到它。如果需要执行，请直接提出。",
  "unread-call": "这段文字像是一个调用，但无法确定如何读取，所以没有执行。如果经常出现，可用 xmlcall probe 找出适合这个模型的格式。",
  echo: "调用照抄了对话中的文字，或者用了提示词示例中的值。如果需要执行，请用自己的话提出。", "not-said": "对话和结果中都没有调用所需的一个值。请在请求中写明它。",
};

const MARKUP = {
  "call-in-reasoning": "回复没有其他内容，推理以一个调用结束；已按设置（reasoned_calls）采用这个调用。",
  "lost-call": "模型只在推理中调用了一个工具，推理中的调用不会执行。如果需要，请重新提问。",
  "missing-block": "<invoke> 在 <function_calls> 之外，读作一个调用。", "unclosed-block": "回复结束时缺少 </function_calls>，其中的调用是完整的。",
  "unclosed-call": "参数都已结束的调用缺少 </invoke>。", "unclosed-parameter": "参数在下一个参数或调用结束之前缺少结束标签。",
  "wrong-closer": "参数用自己的名称或拼错的标签结束。", "stray-tag": "丢弃了没有配对的标签。", "repeated-block": "丢弃了第一个块内再次打开的 <function_calls>。",
  "text-in-block": "块中调用之间的文本读作给用户的文本。", "code-fence": "丢弃了调用外面的 Markdown 围栏。", "leaked-call": "服务器自带的函数调用把一个调用留在文本中，在那里读取。",
  "attribute-style": "标签的名称没有引号、用了其他引号，或夹在其他属性之间。", "tag-style": "标签用了大写、缩写，或含零宽字符。",
  "parameter-element": "参数写成了以自己名称命名的元素。", "tool-element": "块中的调用写成了以工具名称命名的元素。", "json-body": "调用的参数写成了一个 JSON 对象。",
  "positional-argument": "没有名称的值按声明顺序归给唯一可能的参数。", "bare-string": "字符串没有格式要求的标记。", "arguments-wrapper": "所有参数写成了工具没有的一个参数。",
  "xml-elements": "数组或对象写成了 XML 元素：嵌套，或每项一个参数。", "repeated-call": "省略了同一回复中已有的调用。", "own-words": "省略了模型重复的提示词语句。",
  "results-frame": "丢弃了重复的结果框架。", "byte-order-mark": "丢弃了回复前的字节顺序标记。",
};

const VALUES = {
  "tool-name": "工具名称的拼写不同，只可能是一个工具。", "parameter-name": "参数名称的拼写不同，只可能是一个参数。", "repeated-argument": "参数以相同的值再次给出。",
  "empty-argument": "省略了没有值的可选参数。", "placeholder-argument": "省略了给无参数工具的占位参数。", "number-format": "数字带有分隔符、加号，或写成等于整数的小数。",
  "quoted-value": "数字写在引号里。", "boolean-word": "true、yes、on、false、no 或 off 读作布尔值。", "null-word": "None、nil 或空值读作 null。",
  "enum-spelling": "允许的值之一用了不同的大小写、引号或空白。", "time-zone": "城市名读作其 IANA 时区名。",
  "to-string": "需要字符串的地方给了数字或布尔值。", "single-item": "单个值读作只有一项的列表。",
  "comma-list": "列表用逗号分隔，没有括号。", "line-list": "列表每行写一项。",
};

const JSON_TEXT = {
  "json-single-quotes": "字符串或键用了单引号。", "json-curly-quotes": "字符串或键用了弯引号。", "json-inner-quote": "字符串内的引号没有转义。",
  "json-control-character": "字符串含有未转义的换行、制表符或其他控制字符。", "json-invalid-escape": "不构成 JSON 转义的反斜杠保留为反斜杠。",
  "json-escaped-apostrophe": "转义了撇号，JSON 没有这种转义；去掉了反斜杠。", "json-python-literal": "None、True 或 False 读作 null、true 或 false。",
  "json-tuple": "Python 元组读作数组。", "json-trailing-comma": "丢弃了右括号前的逗号。", "json-equals-sign": "键和值之间写成了等号。", "json-missing-comma": "两项之间缺少逗号。", "json-unquoted-key": "键没有引号。",
  "json-comment": "丢弃了注释。", "json-missing-closer": "结尾缺少右括号。", "json-extra-closer": "结尾多了一个右括号。", "json-double-encoding": "内含 JSON 的字符串读作该 JSON。",
  "json-byte-order-mark": "丢弃了字节顺序标记。", "json-white-space": "丢弃了 JSON 不认识的空白。", "json-code-fence": "丢弃了值外面的 Markdown 围栏。",
};

export const ZH_CODES = Object.fromEntries(
  Object.entries({ ...ISSUES, ...MARKUP, ...VALUES, ...JSON_TEXT }).map(([code, text]) => [`code.${code}`, text]));
