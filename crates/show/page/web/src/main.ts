// Starts the page: with the document that the file holds, or with those of the server that it comes from.
import './style.css';
import { mount } from 'svelte';
import App from './App.svelte';
import Live from './Live.svelte';
import type { Document } from './document';

const json = document.getElementById('apex-document')?.textContent ?? '';
const target = document.getElementById('page')!;
target.replaceChildren();
if (json) mount(App, { target, props: { doc: JSON.parse(json) as Document } });
else mount(Live, { target });
