// The rules of the languages that have syntax colours: comments, strings and keywords of each.

const words = (text) => new Set(text.split(' '));

// Pieces of regular expressions.
const SLASHES = String.raw`\/\/.*|\/\*[^]*?(?:\*\/|$)`;
const HASH = String.raw`#.*`;
const DOUBLE = String.raw`"(?:\\[^]|[^"\\\n])*"?`;
const SINGLE = String.raw`'(?:\\[^]|[^'\\\n])*'?`;
const BACKTICK = '`(?:\\\\[^]|[^`\\\\])*`?';
const TRIPLE = String.raw`[a-zA-Z]{0,2}"""[^]*?(?:"""|$)|[a-zA-Z]{0,2}'''[^]*?(?:'''|$)`;

/** A language in the style of C. */
const braces = (keywords, strings = `${DOUBLE}|${SINGLE}`) => ({ comment: SLASHES, string: strings, keywords: words(keywords) });

const C = 'auto break case char const continue default do double else enum extern float for goto if inline int long register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false NULL';
const CPP = `${C} alignas alignof and asm catch class concept consteval constexpr const_cast co_await co_return co_yield decltype delete dynamic_cast explicit export final friend mutable namespace new noexcept not nullptr operator or override private protected public reinterpret_cast requires static_assert static_cast template this thread_local throw try typeid typename using virtual wchar_t`;
const JAVASCRIPT = 'async await break case catch class const continue debugger default delete do else export extends false finally for from function get if import in instanceof let new null of return set static super switch this throw true try typeof undefined var void while with yield';
const TYPESCRIPT = `${JAVASCRIPT} abstract any as asserts boolean declare enum implements infer interface is keyof namespace never number private protected public readonly satisfies string symbol type unknown`;
const JAVA = 'abstract assert boolean break byte case catch char class const continue default do double else enum extends final finally float for if implements import instanceof int interface long native new null package permits private protected public record return sealed short static super switch synchronized this throw throws transient true false try var void volatile while yield';
const CSHARP = `${JAVA} as async await base bool checked decimal delegate event explicit fixed foreach get implicit in internal is lock namespace nameof object operator out override params partial readonly ref sbyte set sizeof stackalloc string struct typeof uint ulong unchecked unsafe ushort using virtual where`;
const GO = 'any bool break byte case chan const continue default defer else error fallthrough false float32 float64 for func go goto if import int int32 int64 interface iota map nil package range return rune select string struct switch true type uint uint8 uint32 uint64 var';
const RUST = 'as async await bool box break char const continue crate dyn else enum extern f32 f64 false fn for i8 i16 i32 i64 i128 if impl in isize let loop match mod move mut pub ref return self Self static str struct super trait true type u8 u16 u32 u64 u128 union unsafe use usize where while yield';
const KOTLIN = 'as break by catch class companion const continue constructor data do else enum false final finally for fun get if import in init inline interface internal is lateinit null object open operator override package private protected public return sealed set super suspend this throw true try typealias val var vararg when where while';
const SWIFT = 'actor any as associatedtype async await break case catch class continue default defer deinit do else enum extension fallthrough false fileprivate final for func get guard if import in init inout internal is lazy let mutating nil open operator override private protocol public repeat required rethrows return self Self set some static struct subscript super switch throw throws true try typealias var weak where while';
const PHP = 'abstract and array as break callable case catch class clone const continue declare default do echo else elseif enum extends false final finally fn for foreach function global if implements include instanceof interface match namespace new null or print private protected public readonly require return static switch this throw trait true try use var while yield';
const PYTHON = 'and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield';
const RUBY = 'alias and begin break case class def defined do else elsif end ensure false for if in module next nil not or redo require rescue retry return self super then true undef unless until when while yield';
const SHELL = 'break case cd continue do done echo elif else esac eval exec exit export false fi for function if in local read return select set shift source then trap true unset until while';
const SQL = 'add all alter and as asc between bigint boolean by cascade case char check column constraint create cross database date decimal default delete desc distinct double drop else end except exists false float foreign from full group having if in index inner insert int integer intersect into is join key left like limit not null numeric offset on or order outer primary references returning right select set table text then timestamp true union unique update using values varchar view when where with';
const LUA = 'and break do else elseif end false for function goto if in local nil not or repeat return then true until while';
const GLSL = `${C} buffer in inout ivec2 ivec3 ivec4 layout mat2 mat3 mat4 out shared uint uniform uvec2 uvec3 uvec4 vec2 vec3 vec4`;

const LANGUAGES = {
  bash: { comment: String.raw`(?<=^|\s)#.*`, string: `${DOUBLE}|'[^']*'?`, variable: String.raw`\$(?:\w+|\{[^}\n]*\}|[@*#?$!-])|(?<=\s)--?[a-zA-Z][\w-]*`, keywords: words(SHELL) },
  c: { ...braces(C), meta: String.raw`(?<=^|\n)[ \t]*#[ \t]*\w+` },
  cpp: { ...braces(CPP), meta: String.raw`(?<=^|\n)[ \t]*#[ \t]*\w+` },
  csharp: braces(CSHARP, String.raw`[$@]{0,2}${DOUBLE}|${SINGLE}`),
  css: { comment: String.raw`\/\*[^]*?(?:\*\/|$)`, string: `${DOUBLE}|${SINGLE}`, property: String.raw`[\w-]{1,80}(?=\s*:[^:])|@[\w-]+`, keywords: words('important inherit initial none auto') },
  diff: { added: String.raw`(?<=^|\n)\+.*`, removed: String.raw`(?<=^|\n)-.*`, meta: String.raw`(?<=^|\n)@@.*` },
  dockerfile: { comment: HASH, string: `${DOUBLE}|${SINGLE}`, keywords: words('ADD ARG AS CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL RUN SHELL STOPSIGNAL USER VOLUME WORKDIR') },
  glsl: { ...braces(GLSL), meta: String.raw`(?<=^|\n)[ \t]*#[ \t]*\w+` },
  go: braces(GO, `${DOUBLE}|${SINGLE}|${BACKTICK}`),
  html: { comment: '<!--[^]*?(?:-->|$)', keyword: String.raw`<\/?[a-zA-Z!][\w:-]*|\/?>`, string: String.raw`(?<==)(?:${DOUBLE}|${SINGLE})`, property: String.raw`(?<![\w:-])[\w:-]{1,80}(?=\s*=\s*["'])` },
  ini: { comment: '[#;].*', meta: String.raw`(?<=^|\n)\[[^\n]*`, property: String.raw`[\w.-]{1,80}(?=\s*=)`, string: `${DOUBLE}|${SINGLE}`, keywords: words('true false') },
  java: braces(JAVA, `"""[^]*?(?:"""|$)|${DOUBLE}|${SINGLE}`),
  javascript: braces(JAVASCRIPT, `${DOUBLE}|${SINGLE}|${BACKTICK}`),
  json: { comment: SLASHES, property: String.raw`"(?:\\[^]|[^"\\\n])*"(?=\s*:)`, string: DOUBLE, keywords: words('true false null') },
  kotlin: braces(KOTLIN, `"""[^]*?(?:"""|$)|${DOUBLE}|${SINGLE}`),
  lua: { comment: String.raw`--\[\[[^]*?(?:\]\]|$)|--.*`, string: String.raw`${DOUBLE}|${SINGLE}|\[\[[^]*?(?:\]\]|$)`, keywords: words(LUA) },
  php: { comment: `${SLASHES}|${HASH}`, string: `${DOUBLE}|${SINGLE}`, variable: String.raw`\$\w+`, keywords: words(PHP) },
  python: { comment: HASH, string: String.raw`${TRIPLE}|\b[rbfuRBFU]{1,2}(?:${DOUBLE}|${SINGLE})|${DOUBLE}|${SINGLE}`, meta: String.raw`(?<=^|\n)[ \t]*@[\w.]+`, keywords: words(PYTHON) },
  ruby: { comment: HASH, string: `${DOUBLE}|${SINGLE}`, variable: String.raw`@{1,2}\w+|(?<![:\w]):\w+`, keywords: words(RUBY) },
  rust: { comment: SLASHES, string: String.raw`b?r(?<hashes>#*)"[^]*?(?:"\k<hashes>|$)|b?${DOUBLE}|b?'(?:\\[^'\n]+|[^'\\\n])'`, meta: String.raw`#!?\[[^\]\n]{0,200}\]`, variable: String.raw`'[a-z_]\w*`, keywords: words(RUST) },
  sql: { comment: String.raw`--.*|\/\*[^]*?(?:\*\/|$)`, string: SINGLE, keywords: words(SQL), ignoreCase: true },
  swift: braces(SWIFT, `"""[^]*?(?:"""|$)|${DOUBLE}`),
  toml: { comment: HASH, meta: String.raw`(?<=^|\n)[ \t]*\[[^\n=]*\]`, property: String.raw`(?<=^|\n)[ \t]*[\w."-]{1,80}(?=\s*=)`, string: `${TRIPLE}|${DOUBLE}|'[^'\n]*'?`, keywords: words('true false') },
  typescript: braces(TYPESCRIPT, `${DOUBLE}|${SINGLE}|${BACKTICK}`),
  yaml: { comment: String.raw`(?<=^|\s)#.*`, property: String.raw`(?<=^|\n)[ \t]*(?:- +)?[\w."'\/-]{1,80}(?=:(?:\s|$))`, string: `${DOUBLE}|'[^'\n]*'?`, keywords: words('true false null yes no') },
};

const ALIASES = {
  cc: 'cpp', 'c++': 'cpp', cs: 'csharp', 'c#': 'csharp', cfg: 'ini', comp: 'glsl', console: 'bash', docker: 'dockerfile', golang: 'go', h: 'c', hpp: 'cpp',
  htm: 'html', js: 'javascript', jsonc: 'json', jsx: 'javascript', kt: 'kotlin', less: 'css', mjs: 'javascript', patch: 'diff',
  py: 'python', python3: 'python', rb: 'ruby', rs: 'rust', scss: 'css', sh: 'bash', shell: 'bash', svg: 'html', ts: 'typescript',
  tsx: 'typescript', vue: 'html', xml: 'html', yml: 'yaml', zsh: 'bash',
};

/** The rules of a language by its name after a code fence, or nothing if it is unknown. */
export function language(name) {
  const lower = name.toLowerCase();
  const key = Object.hasOwn(ALIASES, lower) ? ALIASES[lower] : lower;
  return Object.hasOwn(LANGUAGES, key) ? LANGUAGES[key] : undefined;
}
