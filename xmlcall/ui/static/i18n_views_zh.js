/* Chinese words of chat, recorded turns and reading anew. */

export const ZH_VIEWS = {};
